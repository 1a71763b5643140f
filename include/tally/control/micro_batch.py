"""One applied micro-batch of a stream: its offsets, its watermarks, and the Delta commit that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tally.control.store import now_ms

if TYPE_CHECKING:
    from tally.lake import delta

Ranges = dict[str, dict[int, tuple[int, int]]]
# How a micro-batch told copies of an id apart: it held an id until its watermark passed that (Spark's own way), or took
# for copies those that lie near one another in event time (a topic's shared stream).
HELD, NEAR = "held", "near"


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One applied micro-batch; ranges are half-open, watermarks are event time in milliseconds.

    Of a topic's stream, `rows` and `delta_version` (-1) are not told: its rows lie in several tables.
    Partitions stand in the order in which the micro-batch read them, where that matters: see speed/partition_order.py.
    """

    pipeline: str
    version: str
    generation: int
    batch: int
    ranges: Ranges
    late_watermark: int
    watermark: int
    rows: int
    delta_version: int
    committed_at: int
    ids: str = HELD
    first: int | None = None  # the first of several that this entry stands for, each of which was kept elsewhere

    def ends(self, topic: str) -> dict[int, int]:
        return {partition: to for partition, (_, to) in self.ranges.get(topic, {}).items()}


def from_row(row: Any) -> MicroBatch:
    ranges = {t: {int(p): (int(a), int(b)) for p, (a, b) in parts.items()} for t, parts in row["ranges"].items()}
    return MicroBatch(**{**row, "ranges": ranges})


def from_commit(commit: delta.Commit) -> MicroBatch:
    """The entry that a micro-batch's own Delta commit tells."""
    words = commit.words
    return MicroBatch(
        pipeline=words["pipeline"],
        version=words["version"],
        generation=words["generation"],
        batch=words["batch"],
        ranges={t: {int(p): (r[0], r[1]) for p, r in parts.items()} for t, parts in words["ranges"].items()},
        late_watermark=words["late_watermark"],
        watermark=words["watermark"],
        rows=int(words.get("rows") or commit.metrics.get("numOutputRows") or 0),
        delta_version=commit.version,
        committed_at=commit.timestamp or now_ms(),
        ids=words.get("ids", HELD),
        first=words.get("first"),
    )
