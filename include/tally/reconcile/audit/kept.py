"""Whether archive and quarantine hold as many rows as were ingested, of no matter when. No Spark, and no file is read.

A comparison and a part of an audit look at the hours that they need: a row that is gone from another one, or from the
quarantine, would be seen only once somebody comes there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tally.catalog.spec import Pipeline, Topic
from tally.control import incidents, runs
from tally.lake import delta
from tally.sources import archive, redecode

CAUSE = "a topic's records are not all kept"


def check(pipeline: Pipeline) -> list[str]:
    """Open an incident where a topic's tables hold other numbers of rows than were ingested, close it where they do."""
    found = [fault for topic in pipeline.reads for fault in faults(topic)]
    if found:
        cure = "; ".join(f"tally mend {topic.name}" for topic in pipeline.reads)
        incidents.report(pipeline.name, CAUSE, "; ".join(found), cure=cure)
    else:
        incidents.close(pipeline.name, CAUSE, done="all are there")
    return found


def faults(topic: Topic) -> Iterator[str]:
    """What a topic's tables hold too few or too many of."""
    last, history = archive.progress(topic), runs.ingest_history(topic.name)
    if last is None or not history or redecode.begun(topic, last.era):
        return
    wrote = {
        archive.path(topic): sum(one.archived for one in history),
        archive.quarantine_path(topic): sum(sum(one.quarantined.values()) for one in history),
    }
    for path, said in wrote.items():
        there = rows(path, history[-1].seq)
        if there not in (None, said):
            place = path.rsplit("/", 2)[-2]
            yield f"{place}/{topic.name} holds {there:,} rows of the {said:,} that ingests up to {last.seq} wrote"


def rows(path: str, through: int) -> int | None:
    """How many rows of ingests up to one a table's log counts; None where it does not tell."""
    table = delta.table(path)
    if table is None:
        return None
    total = 0
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        count, oldest, newest = (file.get(name) for name in ("num_records", "min._ingest", "max._ingest"))
        if count is None or oldest is None or oldest <= through < newest:
            return None
        total += count if oldest <= through else 0
    return total
