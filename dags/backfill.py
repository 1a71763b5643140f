"""The backfill dag of Airflow: a form over the catalogue's pipelines."""

from tally.catalog.load import definitions
from tally.orchestration.forms import backfill
from tally.orchestration.render import render

dag = render(backfill(definitions().names))
