"""What a topic's micro-batches came to, before any table has it: one commit each, for all pipelines that share them.

A row holds one pipeline's groups that a micro-batch changed, with all that was added up in them so far; the newest row
of a group counts. The commit tells the ranges and the clock, so a micro-batch that is run again is taken from here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.control import leases
from tally.control.leases import Lease
from tally.control.ledger import Ranges
from tally.lake import delta
from tally.speed.commit import NUMBERED
from tally.speed.shared.clock import Clock

SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("pipeline", pa.string()),
        ("version", pa.string()),
        ("totals", pa.binary()),  # an Arrow stream
    ]
)
# Reading the log costs more with each entry since its checkpoint: 5 ms at first, 25 after some hundred.
# Where the streams' own tables are folded more often, so is it.
FOLD_EVERY = 50
# Nobody reads an older version than the newest, and a fold needs none: what it replaced is kept for whoever has just
# begun to read, and every file in the folder of the log is listed by each commit.
KEPT_SECONDS = 60
PROPERTIES = {
    "delta.checkpointInterval": "1000000",
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": f"interval {KEPT_SECONDS} seconds",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_SECONDS} seconds",
}


@dataclass(frozen=True, kw_only=True)
class Taken:
    """One micro-batch of a topic: its ranges, by which watermark it judged what is late, and the clock after it."""

    generation: int
    batch: int
    ranges: Ranges
    late_watermark: int
    clock: Clock

    def ends(self, topic: str) -> dict[int, int]:
        """How far each partition was read."""
        return ends_of(self.ranges, topic)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A pipeline's totals of the groups that a micro-batch changed."""

    batch: int
    totals: pa.Table


def ends_of(ranges: Ranges, topic: str) -> dict[int, int]:
    """Where the ranges of a topic end."""
    return {partition: to for partition, (_, to) in ranges[topic].items()}


class Inbox:
    """The inbox of one generation of a topic's stream, which its one reader writes under its lease."""

    def __init__(self, topic: str, generation: int, lease: Lease) -> None:
        self.lease = lease
        self.path = settings().table("inbox", topic, f"g{generation}")
        self.known: Taken | None = None
        self.table: DeltaTable | None = None  # open, from a fold to the next one: see `tables.read_anew`
        self.lock = RLock()  # the stream writes, and beside it those who catch up

    def newest(self) -> Taken | None:
        """The newest micro-batch; a fold tells of it again."""
        self.known = self.known or self.looked_up()
        return self.known

    def looked_up(self) -> Taken | None:
        for commit in delta.commits(self.path):
            if commit.words.get("kind") in ("taken", "fold"):
                return of_words(commit.words)
        return None

    def take(self, taken: Taken, totals: Mapping[tuple[str, str], pa.Table]) -> None:
        """Keep what a micro-batch came to, in one commit; `totals` by pipeline and version."""
        rows = [(taken.batch, name, version, packed(table)) for (name, version), table in totals.items()]
        failpoint("shared.before_taken")
        with self.lock:
            self.write(rows, as_words("taken", taken), "append")
            self.known = taken
        failpoint("shared.after_taken")

    def take_late(self, batch: int, place: tuple[str, str], totals: pa.Table) -> None:
        """Keep what an earlier micro-batch came to for a pipeline that took part in it only now."""
        with self.lock:
            newest = self.newest()
            assert newest is not None, "nobody is late to what has not begun"
            self.write([(batch, *place, packed(totals))], as_words("taken", newest), "append")

    def rows(self, pipeline: str, version: str) -> list[Row]:
        """A pipeline's rows, oldest micro-batch first."""
        mine = [row for row in self.all_rows() if (row["pipeline"], row["version"]) == (pipeline, version)]
        found = [Row(batch=row["batch"], totals=unpacked(row["totals"])) for row in mine]
        return sorted(found, key=lambda row: row.batch)

    def fold(self, taken: Taken, wholes: Mapping[tuple[str, str], pa.Table]) -> None:
        """Put in the place of all rows of these pipelines one each, with the groups that are still open; others stay.

        What their older generations had goes: nothing of it is ever asked for again.

        Doing so again changes nothing; whoever was killed in it finds all as it was.
        """
        with self.lock:
            self.put_together(taken, wholes)

    def put_together(self, taken: Taken, wholes: Mapping[tuple[str, str], pa.Table]) -> None:
        there = {(name, of_version(version)) for name, version in wholes}
        kept = [
            (row["batch"], row["pipeline"], row["version"], row["totals"])
            for row in self.all_rows()
            if (row["pipeline"], of_version(row["version"])) not in there
        ]
        mine = [(taken.batch, name, version, packed(table)) for (name, version), table in wholes.items()]
        failpoint("shared.before_inbox_fold")
        self.write([*kept, *mine], as_words("fold", taken), "overwrite")
        failpoint("shared.after_inbox_fold")
        self.table, table = None, DeltaTable(self.path)
        if any(table.metadata().configuration.get(name) != value for name, value in PROPERTIES.items()):
            table.alter.set_table_properties(PROPERTIES)  # it is of an older make
        table.create_checkpoint()
        table.cleanup_metadata()
        self.sweep(table)

    def sweep(self, table: DeltaTable) -> None:
        """Delete the files that a fold replaced, or a killed driver left; doing so again changes nothing."""
        if "://" in self.path:
            table.vacuum(1, dry_run=False, enforce_retention_duration=False)
            return
        named, before = {Path(file).name for file in table.file_uris()}, time.time() - KEPT_SECONDS
        with os.scandir(self.path) as found:
            there = [file for file in found if file.name.endswith(".parquet") and file.name not in named]
        for file in there:
            if file.stat().st_mtime < before:
                os.unlink(file)

    def all_rows(self) -> list[dict[str, Any]]:
        table = delta.table(self.path)
        return [] if table is None else table.to_pyarrow_table().to_pylist()

    def write(self, rows: list[tuple[int, str, str, bytes]], words: str, mode: str) -> None:
        leases.check(self.lease)
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in SCHEMA]
        # To open it takes longer than to write; what a write has failed on is opened again.
        table, self.table = self.table or delta.table(self.path), None
        write_deltalake(
            table or self.path,
            pa.table(columns, schema=SCHEMA),
            mode=mode,
            configuration=None if table else PROPERTIES,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": words}),
        )
        self.table = table


def of_version(place: str) -> str:
    """The version of a pipeline, whichever its generation."""
    return place.partition(NUMBERED)[0]


def packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def unpacked(data: bytes | pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def as_words(kind: str, taken: Taken) -> str:
    return delta.words(
        kind,
        generation=taken.generation,
        batch=taken.batch,
        ranges=taken.ranges,
        late_watermark=taken.late_watermark,
        clock=taken.clock.as_words(),
    )


def of_words(words: Mapping[str, Any]) -> Taken:
    ranges = {t: {int(p): (r[0], r[1]) for p, r in parts.items()} for t, parts in words["ranges"].items()}
    return Taken(
        generation=words["generation"],
        batch=words["batch"],
        ranges=ranges,
        late_watermark=words["late_watermark"],
        clock=Clock.of_words(words["clock"]),
    )
