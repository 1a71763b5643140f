"""reconcile__<pipeline>, an Airflow dag for each pipeline of the catalogue; a broken definition keeps its own."""

from tally.base.settings import settings
from tally.catalog.load import definitions
from tally.orchestration.graph import broken, reconcile
from tally.orchestration.render import render

known = definitions()
graphs = [reconcile(pipeline, settings().run_deadline) for pipeline in known.pipelines.values()]
graphs += [broken(name, settings().batch_every)[1] for name in known.broken]
globals().update({graph.dag_id: render(graph) for graph in graphs})
