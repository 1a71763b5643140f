"""reconcile__<pipeline>, an Airflow dag for each pipeline of the catalogue."""

from tally.catalog.load import catalogue
from tally.orchestration.graph import reconcile
from tally.orchestration.render import render
from tally.settings import settings

for pipeline in catalogue().pipelines.values():
    globals()[f"reconcile__{pipeline.name}"] = render(reconcile(pipeline, settings().run_deadline))
