"""What a pipeline means in both layers, by its kind: one file each, and one place that says which it is."""

from tally.catalog.spec import Events as Slots
from tally.catalog.spec import Pipeline, Session
from tally.kinds.events import Events
from tally.kinds.join import Join
from tally.kinds.kind import Kind
from tally.kinds.session import Sessions
from tally.kinds.windowed import Windowed


def kind_of(pipeline: Pipeline) -> Kind:
    """The pipeline as its kind takes it."""
    if isinstance(pipeline.window, Session):
        return Sessions(pipeline=pipeline)
    if isinstance(pipeline.window, Slots):
        return Events(pipeline=pipeline)
    return Join(pipeline=pipeline) if len(pipeline.reads) > 1 else Windowed(pipeline=pipeline)
