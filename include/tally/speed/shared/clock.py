"""How far event time has come in a topic: the least of its partitions, for the newest of any would outrun the others.

Nothing here looks at a wall clock: what a micro-batch held, and the broker times of its records, decide. No Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The newest event and broker time of a partition's records, in milliseconds, and the broker time of the first."""

    event: int
    record: int
    first: int

    def after(self, other: Seen) -> Seen:
        newest = {"event": max(self.event, other.event), "record": max(self.record, other.record)}
        return Seen(**newest, first=min(self.first, other.first))


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What was seen of each partition that ever had a valid record, and the watermark that follows; it never falls."""

    watermark: int = 0
    seen: Mapping[int, Seen] = field(default_factory=dict)
    begun: int | None = None  # the oldest broker time at first: who was never heard is silent since then

    def after(self, batch: Mapping[int, Seen], waiting: Mapping[int, int], lateness: int, idle: int) -> Clock:
        """The clock after a micro-batch; `waiting` tells each partition's records that Kafka still holds unread.

        A partition is left out once it has nothing to read, and nothing came to it for `idle` ms of broker time.
        """
        seen = {**self.seen, **{p: self.seen[p].after(one) if p in self.seen else one for p, one in batch.items()}}
        if not seen:
            return self
        begun = min(one.first for one in batch.values()) if self.begun is None else self.begun
        now = max(one.record for one in seen.values())
        active = [
            seen[p].event if p in seen else None
            for p, left in waiting.items()
            if left > 0 or now - (seen[p].record if p in seen else begun) <= idle
        ]
        if not active or None in active:
            return replace(self, seen=seen, begun=begun)
        least = min(event for event in active if event is not None)
        return Clock(watermark=max(self.watermark, least - lateness), seen=seen, begun=begun)

    def as_words(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_words(words: Mapping[str, Any]) -> Clock:
        seen = {int(p): Seen(**{"first": one["record"], **one}) for p, one in words["seen"].items()}
        return Clock(watermark=words["watermark"], seen=seen, begun=words["begun"])
