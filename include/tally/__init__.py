"""One definition, two layers: what a definition file needs is importable from here, and nothing else is."""

from tally.catalog.declare import events, hopping, pipeline, session, topic, tumbling

__all__ = ["events", "hopping", "pipeline", "session", "topic", "tumbling"]
