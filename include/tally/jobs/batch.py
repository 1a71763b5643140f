"""A batch: what is new in Kafka is archived, then a range of windows is restated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tally.base.duration import from_millis, instant, iso
from tally.batch import restate
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned
from tally.jobs.archive import FEW_RECORDS, known, line, taken
from tally.lake import memory
from tally.lake.session import session
from tally.sources import reached
from tally.sources.archive import Ingest
from tally.sources.ingest import ingest


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a batch run took in and restated."""

    pipeline: str
    ingested: list[Ingest]
    ranges: list[Range]
    archived: bool = False  # it was before: nothing was looked for

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "ingested": [
                {"topic": i.topic, "seq": i.seq, "archived": i.archived, "quarantined": i.quarantined, "gaps": i.gaps}
                for i in self.ingested
            ],
            "restated": [{"from": iso(from_millis(a)), "to": iso(from_millis(b))} for a, b in self.ranges],
        }

    def __str__(self) -> str:
        took = list(map(line, self.ingested)) or ([] if self.archived else ["nothing new to ingest"])
        stated = [f"restated [{iso(from_millis(a))}, {iso(from_millis(b))})" for a, b in self.ranges]
        return "\n".join(f"{self.pipeline}: {told}" for told in [*took, *stated])


@memory.told(memory.BATCH)
def batch(name: str, start: str, end: str, *, only: bool = False, archived: bool = False) -> Report:
    """Archive what is new, then restate [from, to) of a pipeline.

    With `archived` nothing is: the range is refused, for now, where an archive has not reached its end.
    """
    pipeline = catalogue().pipeline(name)
    wanted = aligned((instant(start, "--from"), instant(end, "--to")), pipeline)
    topics = pipeline.reads
    if archived:
        reached.require(name, [topic.name for topic in topics], instant(end, "--to"))
    spark = session(f"tally-batch-{name}", brief=sum(map(taken if archived else known, topics)) <= FEW_RECORDS)
    done = [] if archived else [one for topic in topics for one in ingest(spark, topic)]
    ranges = restate.restate(spark, pipeline, wanted, only=only).ranges
    return Report(pipeline=name, ingested=done, ranges=ranges, archived=archived)
