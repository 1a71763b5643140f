"""One definition, two layers: what a definition file needs is importable from here, and nothing else is."""

from tally.catalog.declare import hopping, pipeline, session, topic, tumbling

__all__ = ["hopping", "pipeline", "session", "topic", "tumbling"]
