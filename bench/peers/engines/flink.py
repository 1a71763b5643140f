"""Flink SQL into Iceberg, exactly once, in one JVM with a task manager of its own: what one machine needs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.peers import jars, profile
from bench.peers.engines.engine import Command, Work, started_at
from bench.peers.meter import Cost
from tally.embedded.java import java

SLOTS = 2
HEAP = "-Xmx2g"
# The packages that Flink's own distribution opens.
OPENED = (
    "java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
)  # fmt: skip
SETTINGS = {
    "parallelism.default": str(SLOTS),
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
    "taskmanager.memory.managed.size": "256m",
    "restart-strategy.type": "none",
}
WAREHOUSE = """
CREATE CATALOG ice WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = 'file://{folder}/warehouse');
CREATE DATABASE IF NOT EXISTS ice.db;
"""
KAFKA = (
    "'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}', 'format' = 'json', "
    "'properties.max.partition.fetch.bytes' = '4194304', 'properties.max.poll.records' = '5000', "
    "'scan.startup.mode' = 'earliest-offset'"
)
DRAIN = """
CREATE TABLE ice.db.trips (w TIMESTAMP(6), k INT, n BIGINT, amount DOUBLE);
CREATE TEMPORARY TABLE rides (
  {key} INT, amount DOUBLE, ts BIGINT,
  et AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR et AS et - INTERVAL '10' MINUTE
) WITH ({kafka}, 'scan.bounded.mode' = 'latest-offset');
INSERT INTO ice.db.trips
SELECT CAST(window_start AS TIMESTAMP(6)), {key}, COUNT(*), SUM(amount)
FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(et), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, {key};
"""
COLUMNS = "{w: 'TIMESTAMP', k: 'INTEGER', n: 'BIGINT', amount: 'DOUBLE'}"
DUMP = """
CREATE TEMPORARY TABLE dump_{name} WITH (
  'connector' = 'filesystem', 'path' = 'file://{folder}/rows/{name}', 'format' = 'json'
) LIKE ice.db.{name} (EXCLUDING ALL);
INSERT INTO dump_{name} SELECT * FROM ice.db.{name};
"""


def command(
    script: str, folder: Path, settings: Mapping[str, str], *, recorded: Path | None = None, name: str = "job"
) -> Command:
    """A JVM that runs a script of SQL, one job of all its INSERTs."""
    file = folder / f"{name}.sql"
    file.write_text(script)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    options = [HEAP, "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", *opened]
    if recorded is not None:
        options.append(profile.java_option(recorded))
    chosen = [f"{key}={value}" for key, value in {**SETTINGS, **settings}.items()]
    return Command(words=[java(), *options, "-cp", f"{jars.flink()}/*", "Statements", str(file), str(SLOTS), *chosen])


def dump(folder: Path, tables: Sequence[str]) -> None:
    """Have Flink read its own tables in batch, what its deletes took away left out, into JSON below rows/."""
    script = WAREHOUSE.format(folder=folder) + "".join(DUMP.format(folder=folder, name=name) for name in tables)
    batch = command(script, folder, {"execution.runtime-mode": "BATCH"}, name="dump")
    with (folder / "dump.log").open("w") as log:
        subprocess.run(batch.words, env=batch.whole_env, stdout=log, stderr=log, check=True, timeout=600)


class Flink:
    """A bounded job over what the topic holds; its windows are put out as the watermark passes them."""

    name = "flink"

    def drain(self, work: Work) -> Command:
        kafka = KAFKA.format(topic=work.topic, bootstrap=work.bootstrap)
        script = WAREHOUSE.format(folder=work.folder) + DRAIN.format(key=work.key, kafka=kafka)
        settings = {
            "execution.checkpointing.interval": "10 s",
            "execution.checkpointing.dir": f"file://{work.folder}/checkpoints",
        }
        return command(script, work.folder, settings, recorded=work.profile)

    def rows(self, work: Work) -> pa.Table:
        dump(work.folder, ["trips"])
        return duckdb.sql(
            f"SELECT epoch_ms(w) AS w, k, n, amount FROM read_json('{work.folder}/rows/trips/*', columns = {COLUMNS})"
        ).to_arrow_table()

    def up_at(self, work: Work, cost: Cost) -> float:
        return started_at(cost)

    def commits(self, work: Work) -> Path:
        return work.folder / "warehouse" / "db" / "trips" / "metadata"
