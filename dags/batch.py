"""batch__<pipeline>, an Airflow dag for each pipeline of the catalogue; a broken definition keeps its own."""

from tally.base.settings import settings
from tally.catalog.load import definitions
from tally.orchestration.graph import batch, broken
from tally.orchestration.render import render

known, every = definitions(), settings().batch_every
graphs = [batch(pipeline, every, settings().run_deadline) for pipeline in known.pipelines.values()]
graphs += [broken(name, every)[0] for name in known.broken]
globals().update({graph.dag_id: render(graph) for graph in graphs})
