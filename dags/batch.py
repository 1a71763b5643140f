"""batch__<pipeline>, an Airflow dag for each pipeline of the catalogue; a broken definition keeps its own."""

from tally.catalog.load import definitions
from tally.catalog.schedule import deadline, every, every_of
from tally.orchestration.graph import batch, broken
from tally.orchestration.render import render

known = definitions()
graphs = [batch(pipeline, every(pipeline), deadline(pipeline)) for pipeline in known.pipelines.values()]
graphs += [broken(name, every_of(name)) for name in known.broken]
globals().update({graph.dag_id: render(graph) for graph in graphs})
