"""archive__<topic>, an Airflow dag for each topic that a pipeline reads, or may read: who does is not known of all."""

from tally.base.settings import settings
from tally.catalog.load import definitions
from tally.orchestration.graph import archive
from tally.orchestration.render import render

known, every = definitions(), settings().archive_every
readers = {name: [pipeline.name for pipeline in known.readers(name)] for name in known.topics}
graphs = [archive(name, every, who) for name, who in readers.items() if who or known.broken]
globals().update({graph.dag_id: render(graph) for graph in graphs})
