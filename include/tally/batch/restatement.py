"""What the newest restatement says of its batch table, as a value; words that cannot be true are refused. No Spark.

They decide which windows are stated, and which late events are: a false one would leave these out for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo
from tally.catalog.ranges import Range, without
from tally.catalog.spec import Pipeline
from tally.control import runs


@dataclass(frozen=True, kw_only=True)
class Restatement:
    """What the batch table holds: which windows were ever stated, from which archive commit of each topic."""

    covered: list[Range]
    stale: list[Range]  # of these, what events of later archive commits touch, and was not stated again
    through: dict[str, int]  # events of archive commits up to this one are stated wherever they fall, per topic
    seen: dict[str, int]  # what is stale was worked out up to this archive commit, per topic
    versions: dict[str, int]  # the archive's Delta version, per topic
    redecoded: dict[str, int]  # what was decoded again up to this version of it is stated wherever it falls, per topic
    ends: dict[str, dict[int, int]]  # the archive's end offsets, per topic
    ranges: list[Range]  # what this one replaced
    delta_version: int
    # What events of followed commits touch and was left to a later interval: nobody would come back to it otherwise.
    left: list[Range] = field(default_factory=list)

    @property
    def followed(self) -> tuple[dict[str, int], dict[str, int]]:
        """The archive commits, and the versions decoded again, of which every touched window was stated."""
        return self.through, self.redecoded

    @property
    def current(self) -> list[Range]:
        """The windows that hold all that the archive held."""
        return without(self.covered, self.stale)


def from_words(words: dict[str, Any], version: int) -> Restatement:
    return Restatement(
        covered=[(a, b) for a, b in words["covered"]],
        stale=[(a, b) for a, b in words["stale"]],
        through=words["through"],
        seen=words["seen"],
        versions=words["versions"],
        redecoded=words.get("redecoded", {}),
        ends={t: {int(p): o for p, o in parts.items()} for t, parts in words["ends"].items()},
        ranges=[(a, b) for a, b in words["ranges"]],
        delta_version=version,
        left=[(a, b) for a, b in words.get("left", [])],
    )


def check_words(pipeline: Pipeline, newest: Restatement, before: Restatement | None) -> None:
    """Refuse a batch table whose newest words contradict themselves, the ones before, or the archive's."""
    for fault in [*of_itself(newest, before), *of_archive(newest)]:
        held = newest.covered or newest.ranges or (before.covered if before else [])
        span = [iso(from_millis(edge)) for edge in (held[0][0], held[-1][1])] if held else ["T", "T"]
        raise AnswerIsNo(
            f"version {newest.delta_version} of its batch table says what cannot be: {fault}",
            pipeline=pipeline.name,
            cure=f"move batch/{pipeline.name}/{pipeline.version} aside, then "
            f"tally backfill {pipeline.name} --from {span[0]} --to {span[1]}",
        )


def of_itself(newest: Restatement, before: Restatement | None) -> Iterator[str]:
    """Windows that were stated and are not covered; events taken for stated that nobody looked at."""
    for stated in (newest.ranges, before.covered if before else []):
        for start, end in without(stated, newest.covered):
            yield f"[{iso(from_millis(start))}, {iso(from_millis(end))}) was stated, and is not covered"
    for topic, seq in newest.through.items():
        if seq > newest.seen.get(topic, -1):
            yield f"events of topic {topic} are stated through ingest {seq}, and seen up to {newest.seen.get(topic)}"


def of_archive(newest: Restatement) -> Iterator[str]:
    """Ingests that were not there, or that ended at other offsets."""
    for topic, seq in newest.seen.items():
        known = {one.seq: one for one in runs.ingest_history(topic)}
        if not known:
            continue  # a new control store: the next ingest copies them from the archive's own words
        if seq > max(known):
            yield f"topic {topic} is seen up to ingest {seq}, and the archive has {max(known)}"
        elif seq in known:
            ends = {partition: to for partition, (_, to) in known[seq].ranges.items()}
            if newest.ends.get(topic) != ends:
                yield f"ingest {seq} of topic {topic} ended at {newest.ends.get(topic)}, and the archive says {ends}"
