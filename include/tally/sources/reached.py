"""How far the archives are in time, and which of them a range of windows still has to wait for. No Spark, no Kafka.

An archive has reached a moment when a run of it that asked Kafka for its ends at that moment or later has come to its
end: what Kafka held then is in it. Neither events nor what brokers stamped on them is asked, so a topic in which
nothing comes is brought there by its next run like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tally.base.duration import from_millis, iso
from tally.base.errors import TallyError
from tally.control import runs


def behind(topics: Sequence[str], moment: int, known: Mapping[str, int] | None = None) -> dict[str, int | None]:
    """The topics whose archive has not reached a moment (ms), and how far each is; None: no run of it ended yet."""
    marks = runs.reached_by_topic() if known is None else known
    return {topic: marks.get(topic) for topic in topics if marks.get(topic, -1) < moment}


def said(late: Mapping[str, int | None]) -> str:
    """How far each archive is, in words."""
    return "; ".join(
        f"archive/{topic} " + ("was never brought up to Kafka" if at is None else f"has reached {iso(from_millis(at))}")
        for topic, at in sorted(late.items())
    )


def require(pipeline: str, topics: Sequence[str], moment: int) -> None:
    """Refuse to go on, for now, where an archive has not reached a moment (ms)."""
    late = behind(topics, moment)
    if late:
        raise TallyError(
            f"{said(late)}, and the range ends at {iso(from_millis(moment))}",
            pipeline=pipeline,
            field="--to",
            cure=f"wait for {' and '.join(f'archive__{topic}' for topic in sorted(late))}; "
            f"tally batch {pipeline} archives by itself what is new",
        )
