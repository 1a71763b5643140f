"""What a Tally's tables and its control store say, read without Spark, as plain sets that the invariants are about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from faults.truth import SHAPES, Batch, Key, Place, Rows

MILLIS = 1_000_000_000
# What every refusal for lost records says: see kafka.check_retained.
LOST = re.compile(r"topic (\S+), partition (\d+), offsets \[(\d+), (\d+)\)")


@dataclass(frozen=True, order=True)
class Lost:
    """Offsets that somebody was told are gone."""

    topic: str
    partition: int
    start: int
    end: int

    def holds(self, place: Place) -> bool:
        return place[:2] == (self.topic, self.partition) and self.start <= place[2] < self.end


@dataclass
class Seen:
    """One pipeline, as its reader sees it after everything."""

    pipeline: str
    served: dict[Key, tuple[int, float, str]] = field(default_factory=dict)
    doubled_rows: list[Key] = field(default_factory=list)
    speed: Rows = field(default_factory=dict)
    archive: Counter[Place] = field(default_factory=Counter)
    quarantine: dict[Place, list[str]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    trimmed: set[date] = field(default_factory=set)
    told_lost: set[Lost] = field(default_factory=set)
    found: dict[str, Any] = field(default_factory=dict)


def look(name: str, found: dict[str, Any], said: str = "") -> Seen:
    """Everything of one pipeline; `said` is text in which a refusal may have named lost offsets."""
    from tally.catalog.load import catalogue
    from tally.control import incidents
    from tally.lake import delta
    from tally.speed import commit
    from tally.speed.upkeep import fold

    pipeline = catalogue().pipeline(name)
    seen = Seen(name, found=found)
    for row in reader(pipeline, "served"):
        key = key_of(row)
        if key in seen.served:
            seen.doubled_rows.append(key)
        seen.served[key] = (row["n"], row["total"], row["state"])
    seen.speed = {key_of(row): (row["n"], row["total"]) for row in reader(pipeline, "speed")}
    topic = SHAPES[name].topic
    for partition, offset in columns("archive", topic, "_partition", "_offset"):
        seen.archive[topic, partition, offset] += 1
    for partition, offset, reason in columns("quarantine", topic, "_partition", "_offset", "_reason"):
        seen.quarantine.setdefault((topic, partition, offset), []).append(reason)
    seen.batches = batches(name)
    version = delta.version(commit.path(pipeline))
    seen.trimmed = set(fold.trimmed_days(pipeline, version)) if version >= 0 else set()
    told = " ".join([said, *(one.evidence for one in incidents.history())])
    seen.told_lost = {Lost(t, int(p), int(a), int(b)) for t, p, a, b in LOST.findall(told)}
    return seen


def reader(pipeline: Any, layer: str) -> list[dict[str, Any]]:
    from tally.serving.read import read

    rows: list[dict[str, Any]] = read(pipeline, layer=layer).to_pylist()  # type: ignore[arg-type]
    return rows


def key_of(row: dict[str, Any]) -> Key:
    start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
    return start, end, row["shop"]


def columns(layer: str, topic: str, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of a topic's table, row by row; nothing where there is no table."""
    from tally.base.settings import settings
    from tally.lake import delta

    table = delta.table(settings().table(layer, topic))
    if table is None:
        return iter(())
    found = table.to_pyarrow_table(columns=list(names))
    return zip(*(found[name].to_pylist() for name in names), strict=True)


def batches(name: str) -> list[Batch]:
    """Every Delta commit of the speed table that says it is a micro-batch, in the order of its versions.

    Its log is short, and shorter where the clock jumps: what has left it was copied to the table of the ledger before.
    """
    from tally.catalog.load import catalogue
    from tally.control import kept_ledger
    from tally.lake import delta
    from tally.speed import commit

    topic = SHAPES[name].topic
    found = []
    for entry in delta.commits(commit.path(catalogue().pipeline(name))):
        words = entry.words
        if words.get("kind") == "micro-batch":
            ranges = {int(p): (int(a), int(b)) for p, (a, b) in words["ranges"].get(topic, {}).items()}
            marks = {"late_watermark": words["late_watermark"], "watermark": words["watermark"]}
            place = {"generation": words["generation"], "batch": words["batch"], "version": entry.version}
            found.append(Batch(ranges=ranges, shared=words["ids"] == "near", **place, **marks))
    known = {(batch.generation, batch.batch) for batch in found}
    for kept in kept_ledger.entries(catalogue().pipeline(name)):
        if (kept.generation, kept.batch) not in known:
            marks = {"late_watermark": kept.late_watermark, "watermark": kept.watermark}
            place = {"generation": kept.generation, "batch": kept.batch, "version": kept.delta_version}
            found.append(Batch(ranges=kept.ranges.get(topic, {}), shared=kept.ids == "near", **place, **marks))
    return sorted(found, key=lambda batch: batch.version)
