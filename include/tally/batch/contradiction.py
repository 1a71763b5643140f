"""What a restatement's words cannot say: they are held against its own, the ones before it, and the archive's.

They decide which windows are stated, and which late events are: a false one would leave these out for ever. No Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo
from tally.batch.restatement import Restatement
from tally.catalog.ranges import without
from tally.catalog.spec import Pipeline
from tally.control import runs


def check(pipeline: Pipeline, newest: Restatement, before: Restatement | None) -> None:
    """Refuse a batch table whose newest words cannot be true."""
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
        known = {row["seq"]: row for row in runs.ingest_history(topic)}
        if not known:
            continue  # a new control store: the next ingest copies them from the archive's own words
        if seq > max(known):
            yield f"topic {topic} is seen up to ingest {seq}, and the archive has {max(known)}"
        elif seq in known:
            ends = {int(partition): to for partition, (_, to) in known[seq]["ranges"].items()}
            if newest.ends.get(topic) != ends:
                yield f"ingest {seq} of topic {topic} ended at {newest.ends.get(topic)}, and the archive says {ends}"
