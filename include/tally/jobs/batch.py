"""A batch: what is new in Kafka is archived, then a range of windows is restated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tally.base.duration import from_millis, instant, iso
from tally.batch import restate
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned
from tally.catalog.spec import Pipeline
from tally.control import runs
from tally.lake import memory
from tally.lake.session import session
from tally.sources import kafka
from tally.sources.archive import Ingest
from tally.sources.ingest import ingest

# One compiler of the JVM's does for so many records (see BRIEF): a restatement of 100,000 events took 13 CPU seconds
# with it and 24 with both, of 400,000 14 and 19. From how many on the second one pays was not measured.
FEW_RECORDS = 500_000


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a batch run took in and restated."""

    pipeline: str
    ingested: list[Ingest]
    ranges: list[Range]

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
        took = [
            f"archived {i.archived:,} of {i.records:,} records of {i.topic}, "
            f"{sum(i.quarantined.values()):,} quarantined"
            for i in self.ingested
        ]
        stated = [f"restated [{iso(from_millis(a))}, {iso(from_millis(b))})" for a, b in self.ranges]
        return "\n".join(f"{self.pipeline}: {line}" for line in [*(took or ["nothing new to ingest"]), *stated])


@memory.told(memory.BATCH)
def batch(name: str, start: str, end: str, *, only: bool = False, step: str | None = None) -> Report:
    """Ingest, then restate [from, to) of a pipeline; with a step, just that."""
    pipeline = catalogue().pipeline(name)
    wanted = aligned((instant(start, "--from"), instant(end, "--to")), pipeline)
    spark = session(f"tally-batch-{name}", brief=step is None and are_few(pipeline))
    taken = [done for topic in pipeline.reads for done in ingest(spark, topic)] if step != "restate" else []
    ranges = restate.restate(spark, pipeline, wanted, only=only).ranges if step != "ingest" else []
    return Report(pipeline=name, ingested=taken, ranges=ranges)


def are_few(pipeline: Pipeline) -> bool:
    """Whether all that its topics hold, archived or not, is soon looked through."""
    total = 0
    for topic in pipeline.reads:
        history = runs.ingest_history(topic.name)
        starts = {p: start for p, (start, _) in history[0].ranges.items()} if history else {}
        begins = starts or kafka.begin_offsets(topic.name)
        total += sum(end - begins.get(p, 0) for p, end in kafka.end_offsets(topic.name).items())
    return total <= FEW_RECORDS
