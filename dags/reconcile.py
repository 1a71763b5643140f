"""The reconcile dag of Airflow: a form over the catalogue's pipelines."""

from tally.catalog.load import definitions
from tally.orchestration.forms import reconcile
from tally.orchestration.render import render

dag = render(reconcile(definitions().names))
