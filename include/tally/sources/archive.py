"""The archive: every valid record, once, with its bytes and place; beside it every refused one with its reason.

A commit of the archive holds the end offsets, and is what counts as progress. Its words and those of the quarantine's
commit tell what each wrote (see witnesses), and under which contract. They are the truth: the log is never cleaned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.control import runs
from tally.lake import delta
from tally.lake.tables import make_table, set_properties
from tally.sources.frames import partition_date
from tally.sources.records import contract

Offsets = dict[int, tuple[int, int]]

PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.dataSkippingNumIndexedCols": "6",
}
# Statistics that skip files; of keys and values they would only make the log long.
SKIPPED_BY = ("_partition", "_offset", "_broker_time", "_ingest")
HEAD = "_partition INT, _offset BIGINT, _broker_time TIMESTAMP, _ingest BIGINT, _contract STRING, _key BINARY"
FOR_EVER = "interval 36500 days"
COMPRESSION = "zstd"
PROGRESS = ("ingest", "redecode")


@dataclass(frozen=True, kw_only=True)
class Ingest:
    """One archive commit: its ranges and where each of their offsets went."""

    topic: str
    seq: int
    ranges: Offsets
    archived: int
    quarantined: dict[str, int]
    gaps: int  # offsets that hold no record, by Kafka's own count: markers, aborted or compacted records
    delta_version: int
    contract: str = ""
    era: int = 0  # how often all was decoded again before

    @property
    def records(self) -> int:
        return sum(to - start for start, to in self.ranges.values())


def path(topic: Topic) -> str:
    return settings().table("archive", topic.name)


def quarantine_path(topic: Topic) -> str:
    return settings().table("quarantine", topic.name)


def progress(topic: Topic) -> Ingest | None:
    """The newest archive commit, with the newest Delta version of its rows; None where nothing was archived yet."""
    newest = None
    for commit in delta.commits(path(topic)):
        newest = commit.version if newest is None else newest
        if commit.words.get("kind") in PROGRESS:
            return from_words(topic.name, commit.words, newest)
    if newest is not None and holds_rows(path(topic)):
        raise AnswerIsNo(
            f"archive/{topic.name} holds rows, and its log does not say which records they are",
            field=topic.name,
            cure=aside(topic),
        )
    return None


def holds_rows(where: str) -> bool:
    found = delta.table(where)
    return found is not None and bool(found.file_uris())


def from_words(topic: str, words: dict[str, Any], version: int) -> Ingest:
    """The ingest that a commit's words tell of; those of a redecode tell of the last one before it."""
    counts, seq = words["counts"], words["seq"]
    quarantined = {reason: dict(map(tuple, by)).get(seq, 0) for reason, by in counts["quarantined"].items()}
    return Ingest(
        topic=topic,
        seq=seq,
        ranges=offsets_of(words["ranges"]),
        archived=dict(map(tuple, counts["archived"])).get(seq, 0),
        quarantined={reason: number for reason, number in quarantined.items() if number},
        gaps=words["gaps"],
        delta_version=version,
        contract=words["contract"],
        era=words["era"],
    )


def offsets_of(ranges: dict[str, Any]) -> Offsets:
    return {int(partition): (start, to) for partition, (start, to) in ranges.items()}


def make_tables(spark: SparkSession, topic: Topic) -> None:
    """Create both tables where they are missing; older ones of another layout are refused."""
    shapes = {
        path(topic): (f"{HEAD}, _value BINARY, {topic.ddl}, _date DATE", [*SKIPPED_BY, topic.event_time]),
        quarantine_path(topic): (f"{HEAD}, _reason STRING, _raw BINARY, _date DATE", SKIPPED_BY),
    }
    for where, (shape, skipped_by) in shapes.items():
        check_layout(topic, where)
        make_table(spark, where, StructType.fromDDL(shape), properties(skipped_by))


def properties(skipped_by: Any) -> dict[str, str]:
    """What a table of records is made with."""
    return {
        "delta.checkpointInterval": "50",
        "delta.logRetentionDuration": FOR_EVER,
        "delta.deletedFileRetentionDuration": "interval 7 days",
        "delta.dataSkippingStatsColumns": ",".join(skipped_by),
    }


def skip_by_time(spark: SparkSession, topic: Topic) -> None:
    """Have the archive's files skipped by the topic's event time, which may be a column that it lacks so far."""
    there = {column.name for column in delta.schema(path(topic))}
    if topic.event_time not in there:
        spark.sql(f"ALTER TABLE delta.`{path(topic)}` ADD COLUMNS (`{topic.event_time}` TIMESTAMP)")
    set_properties(spark, path(topic), properties([*SKIPPED_BY, topic.event_time]))


def check_layout(topic: Topic, where: str) -> None:
    """Refuse a table that was made before rows knew their contract."""
    if delta.table(where) is not None and "_contract" not in {column.name for column in delta.schema(where)}:
        raise AnswerIsNo(
            f"{'/'.join(where.split('/')[-2:])} has the layout of an older Tally: its rows do not tell their contract",
            field=topic.name,
            cure=aside(topic),
        )


def aside(topic: Topic) -> str:
    return (
        f"move archive/{topic.name} and quarantine/{topic.name} aside: the next batch archives again what Kafka retains"
    )


def archive_rows(records: DataFrame, topic: Topic) -> DataFrame:
    """The valid ones among decoded records, as the archive has them."""
    head = (*head_of(topic), F.col("_raw").alias("_value"))
    return with_date(records.where("_reason IS NULL").select(*head, *topic.columns), topic.event_time)


def quarantine_rows(records: DataFrame, topic: Topic) -> DataFrame:
    """The refused ones among decoded records, as the quarantine has them."""
    rows = records.where("_reason IS NOT NULL").select(*head_of(topic), "_reason", "_raw")
    return with_date(rows, "_broker_time")


def head_of(topic: Topic) -> list[Column]:
    """The columns that both tables begin with."""
    told = F.lit(contract.of(topic)).alias("_contract")
    return [*map(F.col, SKIPPED_BY), told, F.col("_key")]


def with_date(rows: DataFrame, time: str) -> DataFrame:
    return rows.withColumn("_date", partition_date(time))


def bytes_kept(records: DataFrame) -> DataFrame:
    """Decoded records as they are archived: by a setting without key and value where they are valid."""
    if settings().archive_bytes:
        return records
    valid = F.col("_reason").isNull()
    return records.withColumns({name: F.when(~valid, F.col(name)) for name in ("_key", "_raw")})


def last_seq(topic: Topic) -> int:
    """The number of the last ingest that the control store knows of, -1 for none: an archive made anew counts on."""
    known = runs.ingest_history(topic.name)
    return known[-1].seq if known else -1


def check_written(topic: Topic, where: str, kind: str, counted: int) -> None:
    """Hold what Delta says that the newest commit of a kind wrote against what was counted before it."""
    found = delta.newest(where, kind)
    assert found is not None
    wrote = int(found.metrics.get("numOutputRows") or 0) - int(found.metrics.get("numCopiedRows") or 0)
    if wrote != counted:
        raise AnswerIsNo(
            f"{counted:,} rows were counted for {'/'.join(where.split('/')[-2:])}, and its version {found.version} "
            f"holds {wrote:,}",
            field=topic.name,
            cure=f"tally mend {topic.name}",
        )
