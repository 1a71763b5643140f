"""The streams dag of Airflow."""

from tally.orchestration.graph import streams
from tally.orchestration.render import render

dag = render(streams())
