"""reconcile__<pipeline>, an Airflow dag for each pipeline of the catalogue."""

from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.orchestration.graph import reconcile
from tally.orchestration.render import render

for pipeline in catalogue().pipelines.values():
    globals()[f"reconcile__{pipeline.name}"] = render(reconcile(pipeline, settings().run_deadline))
