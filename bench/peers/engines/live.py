"""Engines that follow a topic for many functions at once: how each is started, how far it is, and what it holds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from bench.home import TALLY
from bench.peers import jars, profile
from bench.peers.engines import flink
from bench.peers.engines.engine import Command
from bench.peers.functions import TOPIC, Function
from bench.peers.sales import Batches
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.control import ledger
from tally.embedded.java import java
from tally.lake import delta


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit of one pipeline's rows: when, in milliseconds, and what was in then that had not been before."""

    at: int
    ranges: dict[int, tuple[int, int]] | None = None  # offsets by partition, where the engine says them
    newest: int = 0  # else the broker's time of the newest sale in it


class Live(Protocol):
    """An engine that runs in the home that TALLY_HOME names, until it is ended."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> dict[str, str]:
        """What its home is set to."""
        ...

    def begin(self, functions: Sequence[Function], recorded: Path | None = None) -> Command:
        """What runs all the functions, from where it stood if it ran before; with recordings in a folder, if wanted."""
        ...

    def commits(self, functions: Sequence[Function]) -> dict[str, list[Commit]]:
        """What each function's table was told, in order."""
        ...

    def rows(self, functions: Sequence[Function]) -> dict[str, pa.Table]:
        """What readers get, when the engine has ended: w, k and the measures."""
        ...

    def log(self, function: Function) -> Path:
        """The folder in which each commit of the function's table is a new file."""
        ...

    def batches(self, functions: Sequence[Function]) -> dict[str, Batches]:
        """By which watermark each micro-batch left out late sales; nothing where none are left out."""
        ...


def is_batch(commit: delta.Commit) -> bool:
    return commit.words.get("kind") == "micro-batch"


@dataclass(frozen=True, kw_only=True)
class LiveTally:
    """`tally stream`, one driver for all."""

    shared: bool

    @property
    def name(self) -> str:
        return "tally-shared" if self.shared else "tally"

    @property
    def settings(self) -> dict[str, str]:
        return {"TALLY_SHARED": str(self.shared).lower()}

    def begin(self, functions: Sequence[Function], recorded: Path | None = None) -> Command:
        mine = {name: value for name, value in os.environ.items() if name.startswith("TALLY_")}
        if recorded is None:
            return Command(words=[TALLY, "stream"], env=mine)
        words = [sys.executable, "-m", "bench.peers.profile", str(profile.python_file(recorded)), "stream"]
        return Command(words=words, env={**mine, "TALLY_JAVA_OPTIONS": profile.java_option(recorded)})

    def commits(self, functions: Sequence[Function]) -> dict[str, list[Commit]]:
        return {one.name: self.of_table(one) for one in functions}

    def of_table(self, function: Function) -> list[Commit]:
        """The commits of its own table, oldest first: from then on its rows can be read."""
        found = map(ledger.from_commit, (one for one in delta.commits(str(self.log(function).parent)) if is_batch(one)))
        return [Commit(at=one.committed_at, ranges=one.ranges[TOPIC]) for one in found if one.ranges.get(TOPIC)][::-1]

    def entries(self, function: Function) -> list[ledger.MicroBatch]:
        pipeline = catalogue().pipeline(function.name)
        return [one for one in ledger.read(pipeline.name, pipeline.version) if one.ranges.get(TOPIC)]

    def rows(self, functions: Sequence[Function]) -> dict[str, pa.Table]:
        return {one.name: self.newest_rows(one) for one in functions}

    def log(self, function: Function) -> Path:
        pipeline = catalogue().pipeline(function.name)
        return Path(settings().table("speed", pipeline.name, pipeline.version)) / "_delta_log"

    def newest_rows(self, function: Function) -> pa.Table:
        written = DeltaTable(self.log(function).parent).to_pyarrow_table()  # noqa: F841
        newest = ", ".join(f"arg_max({one.name}, _batch) AS {one.name}" for one in function.measures)
        return duckdb.sql(
            f"SELECT epoch_ms(window_start)::BIGINT AS w, {function.key} AS k, {newest} FROM written GROUP BY ALL"
        ).to_arrow_table()

    def batches(self, functions: Sequence[Function]) -> dict[str, Batches]:
        return {
            one.name: [
                (partition, start, entry.late_watermark)
                for entry in self.entries(one)
                for partition, (start, to) in entry.ranges[TOPIC].items()
                if to > start
            ]
            for one in functions
        }


# The newest broker time of each commit, which nobody asked for: it is how the age of a sale is found.
FOLLOW = """
CREATE TEMPORARY TABLE sales (
  shop INT, city INT, amount DOUBLE, pieces INT, `at` BIGINT, stamp TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
) WITH ({kafka});
"""
TABLE = """
CREATE TABLE IF NOT EXISTS ice.db.{name} (
  w BIGINT, k INT, {columns}, newest TIMESTAMP_LTZ(6), PRIMARY KEY (w, k) NOT ENFORCED
) WITH ('format-version' = '2', 'write.upsert.enabled' = 'true');
INSERT INTO ice.db.{name}
SELECT w, {key}, {measures}, MAX(stamp) FROM ({windows}) WHERE pieces > {least} GROUP BY w, {key};
"""
ONCE = "SELECT *, `at` / {step} * {step} AS w FROM sales"
OFTEN = (
    "SELECT sales.*, `at` / {step} * {step} - back AS w FROM sales CROSS JOIN UNNEST(ARRAY[{backs}]) AS earlier (back)"
)


class LiveFlink:
    """One cluster, one statement set: the topic is read once for all functions, and committed each second."""

    name = "flink"
    settings: dict[str, str] = {}  # noqa: RUF012

    @property
    def folder(self) -> Path:
        return settings().home / "flink"

    def begin(self, functions: Sequence[Function], recorded: Path | None = None) -> Command:
        self.folder.mkdir(exist_ok=True)
        kafka = flink.KAFKA.format(topic=TOPIC, bootstrap=settings().bootstrap())
        script = flink.WAREHOUSE.format(folder=self.folder) + FOLLOW.format(kafka=kafka)
        chosen = {
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": f"file://{self.folder}/checkpoints",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "200 ms",
            "table.exec.mini-batch.size": "5000",
            "table.exec.state.ttl": "1 h",
            # A few thousand sales a second are no work for two of each operator, and twice the files.
            "parallelism.default": "1" if len(functions) > 1 else str(flink.SLOTS),
        }
        kept = sorted(self.folder.glob("checkpoints/*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
        if kept:
            chosen["execution.state-recovery.path"] = f"file://{kept[-1].parent}"
        script += "".join(self.statement(one) for one in functions)
        return flink.command(script, self.folder, chosen, recorded=recorded)

    def statement(self, function: Function) -> str:
        size, step = function.window.size, function.window.step
        backs = ", ".join(str(back) for back in range(0, size, step))
        windows = ONCE.format(step=step) if size == step else OFTEN.format(step=step, backs=backs)
        columns = ", ".join(f"{one.name} {'BIGINT' if one.whole else 'DOUBLE'}" for one in function.measures)
        return TABLE.format(
            name=function.name,
            columns=columns,
            key=function.key,
            measures=", ".join(one.sql for one in function.measures),
            windows=windows,
            least=function.least,
        )

    def commits(self, functions: Sequence[Function]) -> dict[str, list[Commit]]:
        there = {f"{self.folder}/warehouse/db/{one.name}": one.name for one in functions}
        found: dict[str, list[Commit]] = {one.name: [] for one in functions}
        words = [java(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{jars.flink()}/*", "Snapshots"]
        made = [folder for folder in there if Path(folder, "metadata", "version-hint.text").exists()]
        said = subprocess.run([*words, "newest", *made], capture_output=True, text=True, check=True, timeout=300).stdout
        for line in said.splitlines():
            table, at, newest = line.split()
            if int(newest):
                found[there[table]].append(Commit(at=int(at), newest=int(newest) // 1000))
        return found

    def rows(self, functions: Sequence[Function]) -> dict[str, pa.Table]:
        flink.dump(self.folder, [one.name for one in functions])
        return {one.name: self.dumped(one) for one in functions}

    def log(self, function: Function) -> Path:
        return self.folder / "warehouse" / "db" / function.name / "metadata"

    def dumped(self, function: Function) -> pa.Table:
        types = ", ".join(f"{one.name}: '{'BIGINT' if one.whole else 'DOUBLE'}'" for one in function.measures)
        return duckdb.sql(
            f"SELECT * FROM read_json('{self.folder}/rows/{function.name}/*', "
            f"columns = {{w: 'BIGINT', k: 'INTEGER', {types}}})"
        ).to_arrow_table()

    def batches(self, functions: Sequence[Function]) -> dict[str, Batches]:
        return {}
