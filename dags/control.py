"""The control dag of Airflow: a form for what should become of a stream."""

from tally.catalog.load import catalogue
from tally.orchestration.forms import control
from tally.orchestration.render import render

dag = render(control(sorted(catalogue().pipelines)))
