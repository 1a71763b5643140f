"""The control dag of Airflow: a form for what should become of a stream."""

from tally.catalog.load import definitions
from tally.orchestration.forms import control
from tally.orchestration.render import render

dag = render(control(definitions().names))
