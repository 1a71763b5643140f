"""What Spark is asked does not grow: a plan is as long for ten thousand scattered windows as for ten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import world as worlds
from pyspark.sql import DataFrame, SparkSession

from tally.batch.restatement import Restatement
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, event_ranges
from tally.catalog.spec import Pipeline
from tally.control.ledger import MicroBatch
from tally.kinds import kind_of
from tally.kinds.session import Sessions
from tally.reconcile.cut import Cut
from tally.reconcile.replay import expected_rows
from tally.reconcile.rows.differences import by_slot_rows, side_by_side
from tally.sources import archive
from tally.sources.witnesses import verification
from tally.sources.witnesses.checksum import hourly
from tally.sources.witnesses.claims import EVERYTHING, Claimed

KINDS = ("tumbling_u", "hopping", "session_u", "join_u")


@pytest.fixture
def pipelines(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Pipeline]:
    """A catalogue of each kind, with empty archives; no broker is asked."""
    worlds.declare(tmp_path, "plans.", monkeypatch, list(KINDS))
    known = catalogue()
    for topic in known.topics.values():
        archive.make_tables(spark, topic)
    return known.pipelines


def scattered(count: int) -> list[Range]:
    step = 4 * worlds.MINUTE
    return [(worlds.T0 + at * step, worlds.T0 + at * step + 2 * worlds.MINUTE) for at in range(count)]


def cut_of(pipeline: Pipeline, batches: int) -> Cut:
    """A stream of so many micro-batches of ten offsets each."""
    versions = {topic.name: 0 for topic in pipeline.reads}
    ledger = [
        MicroBatch(
            pipeline=pipeline.name, version=pipeline.version, generation=1, batch=at, late_watermark=at, watermark=at,
            ranges={topic.name: {0: (at * 10, at * 10 + 10)} for topic in pipeline.reads}, rows=1, delta_version=at,
            committed_at=0,
        )
        for at in range(batches)
    ]  # fmt: skip
    return Cut(
        pipeline=pipeline, batches=ledger, speed_version=0, travels=True, batch_version=0, filters=False,
        late_rule="event" if pipeline.reads[0].unique else "window",
        stated=Restatement(
            covered=[], stale=[], through={}, seen={}, versions=versions, redecoded={}, ends={}, ranges=[],
            delta_version=0,
        ),
    )  # fmt: skip


def length(frames: Sequence[DataFrame]) -> int:
    return sum(len(frame._jdf.queryExecution().toString()) for frame in frames)


@pytest.mark.parametrize("name", KINDS)
def test_no_plan_grows_with_windows_or_micro_batches(
    spark: SparkSession, pipelines: dict[str, Pipeline], name: str
) -> None:
    pipeline = pipelines[name]
    lengths = []
    for count in (10, 10_000):
        ranges, cut = scattered(count), cut_of(pipeline, count)
        times, kind = event_ranges(pipeline, ranges), kind_of(pipeline)
        if isinstance(kind, Sessions):
            batch = kind.sessions(spark, times[0], cut.stated.versions)
        else:
            batch = kind.scope(spark, ranges, cut.stated.versions).rows
        frames = [expected_rows.tagged_events(spark, cut, *part) for part in zip(pipeline.reads, times, strict=True)]
        stream = expected_rows.replayed(cut, frames, ranges)
        rows = side_by_side({"batch": batch, "stream": stream}, pipeline)
        lengths.append([length([batch]), length(frames), length([stream]), length([by_slot_rows(rows, 1)])])
    few, many = lengths
    assert all(abs(a - b) < 0.05 * a for a, b in zip(few, many, strict=True)), (few, many)


def scans(frame: DataFrame) -> list[set[str]]:
    """The columns of each table that a plan reads, as often as it does."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return [set(leaves.apply(at).schema().fieldNames()) for at in range(leaves.size())]


def test_a_restatement_reads_the_archive_once_and_what_its_function_names(
    spark: SparkSession, pipelines: dict[str, Pipeline]
) -> None:
    pipeline = pipelines["tumbling_u"]
    (topic,) = pipeline.reads
    found = scans(kind_of(pipeline).scope(spark, scattered(2), {topic.name: 0}).rows)
    assert len(found) == 1 and {"shop", topic.event_time} <= found[0] < {*topic.columns, "_date"}


@pytest.mark.parametrize("deep", [False, True])
def test_keys_and_values_are_read_where_they_are_held_against_something(
    spark: SparkSession, pipelines: dict[str, Pipeline], deep: bool
) -> None:
    (topic,) = pipelines["tumbling_u"].reads
    claims = Claimed(place="archive", since=-1, baseline=0, ranges=EVERYTHING, said={}, exact=True)
    rows = verification.read(spark, topic, "archive", None, 0)
    (found,) = scans(hourly(rows, topic, **verification.asked(claims, deep)))
    assert set(topic.columns) <= found and found.isdisjoint({"_key", "_value"}) is not deep
