"""Tally's own stream, one pipeline, by its own command: with a query of its own, or sharing its topic's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from bench.home import TALLY
from bench.peers import profile
from bench.peers.engines.engine import Command, Work
from bench.peers.meter import Cost
from bench.peers.rides import PARTITIONS, SCHEMA
from tally.base.settings import REPO

TOPICS = """
from tally import topic

rides = topic("{topic}", schema="{schema}", event_time="ts", lateness="10 minutes", partitions={partitions}{also})
"""
PIPELINE = '''
from pyspark.sql import functions as F
from topics import rides

from tally import pipeline, tumbling


@pipeline(reads=rides, window=tumbling("1 minute"), key="{key}")
def trips(rides):
    """Rides and takings, minute by minute."""
    return rides.groupBy("window", "{key}").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
'''


@dataclass(frozen=True, kw_only=True)
class Tally:
    """`tally stream --until-caught-up` in a home of its own."""

    shared: bool
    ids: bool = False  # of a topic whose rides are each taken once

    @property
    def name(self) -> str:
        return "tally-shared" if self.shared else "tally"

    def drain(self, work: Work) -> Command:
        catalogue, home = work.folder / "catalogue", work.folder / "home"
        (catalogue / "pipelines").mkdir(parents=True)
        also = ', unique="ride_id"' if self.ids else ""
        topics = TOPICS.format(topic=work.topic, schema=SCHEMA, partitions=PARTITIONS, also=also)
        (catalogue / "topics.py").write_text(topics)
        (catalogue / "pipelines" / "trips.py").write_text(PIPELINE.format(key=work.key))
        env = {
            "TALLY_HOME": str(home),
            "TALLY_CATALOG": str(catalogue),
            "TALLY_JARS": str(REPO / ".jars"),
            "TALLY_KAFKA": work.bootstrap,
            "TALLY_SHARED": str(self.shared).lower(),
        }
        words = [TALLY, "stream", "trips", "--until-caught-up", "--json"]
        if work.profile is not None:
            words = [sys.executable, "-m", "bench.peers.profile", str(profile.python_file(work.profile)), *words[1:]]
            env["TALLY_JAVA_OPTIONS"] = profile.java_option(work.profile)
        return Command(words=words, env=env)

    def rows(self, work: Work) -> pa.Table:
        written = DeltaTable(self.commits(work).parent).to_pyarrow_table()  # noqa: F841
        return duckdb.sql(
            f"SELECT epoch_ms(window_start)::BIGINT AS w, {work.key} AS k, arg_max(n, _batch) AS n, "
            "arg_max(amount, _batch) AS amount FROM written GROUP BY ALL"
        ).to_arrow_table()

    def up_at(self, work: Work, cost: Cost) -> float:
        begun = [file.stat().st_mtime for file in (work.folder / "home" / "checkpoints").rglob("metadata")]
        return min(begun, default=cost.began)

    def commits(self, work: Work) -> Path:
        return next((work.folder / "home" / "lake" / "speed" / "trips").iterdir()) / "_delta_log"
