"""The plan dag of Airflow: a form that says what a backfill would do."""

from tally.catalog.load import definitions
from tally.orchestration.forms import plan
from tally.orchestration.render import render

dag = render(plan(definitions().names))
