"""The maintain dag of Airflow."""

from tally.orchestration.graph import maintain
from tally.orchestration.render import render

dag = render(maintain())
