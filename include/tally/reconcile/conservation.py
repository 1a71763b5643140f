"""The two sums of a comparison: each record of a range is in one place, each ingested offset is accounted for once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tally.catalog.spec import Pipeline
from tally.control import runs

# Where a record of a compared range can be; each is in one place.
PLACES = ("aggregated", "late", "duplicate", "quarantined", "filtered", "skipped", "in_flight", "applied_twice")


@dataclass(frozen=True, kw_only=True)
class Conservation:
    """How many records of a range another reader counted, and how many the replay put in each place."""

    records: int
    places: Mapping[str, int]

    @property
    def balanced(self) -> bool:
        """records = aggregated + late + duplicate + quarantined + filtered + skipped + in flight + applied twice."""
        return sum(self.places.get(name, 0) for name in PLACES) == self.records

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            **{name: self.places.get(name, 0) for name in PLACES},
            "balanced": self.balanced,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Conservation:
        return cls(records=said.get("records", 0), places={name: said[name] for name in PLACES if name in said})


@dataclass(frozen=True, kw_only=True)
class Balance:
    """All offsets of a topic that were ever ingested, and whether each is archived, quarantined or a gap."""

    balanced: bool
    records: int = 0
    archived: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)  # by reason
    gaps: int = 0

    def as_json(self) -> dict[str, Any]:
        names = ("records", "archived", "quarantined", "gaps", "balanced")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Balance:
        return cls(**{name: said[name] for name in cls.__dataclass_fields__ if name in said})


def ingest_balance(pipeline: Pipeline) -> dict[str, Balance]:
    """Per topic, all offsets ever ingested: archived + quarantined + gaps, and whether that leaves none over."""
    return {topic.name: balance(runs.ingest_history(topic.name)) for topic in pipeline.reads}


def balance(history: Sequence[runs.Ingested]) -> Balance:
    """Each ingest begins where the one before it ended: one that left offsets out would balance by itself."""
    quarantined = Counter[str]()
    for one in history:
        quarantined.update(one.quarantined)
    records = sum(to - start for one in history for start, to in one.ranges.values())
    archived, gaps = sum(one.archived for one in history), sum(one.gaps for one in history)
    whole = joined(history) and gaps >= 0 and records == archived + quarantined.total() + gaps
    return Balance(records=records, archived=archived, quarantined=dict(quarantined), gaps=gaps, balanced=whole)


def joined(history: Sequence[runs.Ingested]) -> bool:
    """Whether the offsets of ingests follow on one another in each partition, none left out or taken twice."""
    reached: dict[int, int] = {}
    for one in history:
        for partition, (start, to) in one.ranges.items():
            if reached.get(partition, start) != start:
                return False
            reached[partition] = to
    return True
