"""batch__<pipeline>, an Airflow dag for each pipeline of the catalogue."""

from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.orchestration.graph import batch
from tally.orchestration.render import render

for pipeline in catalogue().pipelines.values():
    globals()[f"batch__{pipeline.name}"] = render(batch(pipeline, settings().batch_every, settings().run_deadline))
