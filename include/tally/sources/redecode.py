"""Decodes archive and quarantine again when their rows were made under another contract than the topic now has.

Quarantine is written first, and its words name the Delta versions of both tables that the records are read from: after
a crash it is gone on from there. Until the archive is written too, nothing is ingested or stated.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.errors import AnswerIsNo
from tally.base.failpoints import failpoint
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Topic
from tally.host import lock
from tally.lake import delta
from tally.lake.session import jvm_pid
from tally.sources import archive
from tally.sources.archive import PROGRESS, Ingest
from tally.sources.records import contract
from tally.sources.records.decode import are_many, decode
from tally.sources.witnesses import commit_copies, manifest, verification
from tally.sources.witnesses.checksum import HOUR, RECORD, hourly, summed, whole
from tally.sources.witnesses.commit_copies import Words
from tally.sources.witnesses.manifest import Sums

# Ranges of event time that a commit names as changed; the narrowest gaps between more of them are filled.
MOST_RANGES = 512


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The Delta versions that all records are read from, up to which ingest."""

    archive: int
    quarantine: int
    through: int


def ensure_current(spark: SparkSession, topic: Topic) -> None:
    """Have the archive's rows be those of the topic's contract; where they are, only its log is read."""
    archive.check_layout(topic, archive.path(topic))
    last = archive.progress(topic)
    if last is not None and (last.contract != contract.of(topic) or begun(topic, last.era) is not None):
        with lock.table("archive", topic.name, jvm=jvm_pid(spark)):
            bring(spark, topic)


def bring(spark: SparkSession, topic: Topic) -> None:
    """Decode all again where the contract is another one, or go on where that was begun. The caller holds the lock."""
    last = archive.progress(topic)
    if last is None:
        return
    earlier = begun(topic, last.era)
    if earlier is None and last.contract == contract.of(topic):
        return
    sources = (
        Sources(**earlier.said["sources"])
        if earlier is not None
        else Sources(
            archive=delta.version(archive.path(topic)),
            quarantine=delta.version(archive.quarantine_path(topic)),
            through=last.seq,
        )
    )
    check_bytes(spark, topic, sources)
    check_held(spark, topic, last, sources)
    write(spark, topic, last, sources, earlier)
    commit_copies.repair(topic)


def begun(topic: Topic, era: int) -> Words | None:
    """The quarantine's commit of a redecode whose archive commit is missing."""
    newest = next(commit_copies.words_in(archive.quarantine_path(topic), ("quarantine", "redecode")), None)
    return newest if newest is not None and newest.kind == "redecode" and newest.place[0] > era else None


def unfinished(topic: Topic) -> bool:
    """Whether a redecode was begun and not ended: it goes on from files that no newest version holds any more."""
    last = next(commit_copies.words_in(archive.path(topic), PROGRESS), None)
    return last is not None and begun(topic, last.place[0]) is not None


def changed_since(topic: Topic, version: int) -> list[Range]:
    """Event times of valid records that came, went or changed when all was decoded again after a Delta version."""
    found: list[Range] = []
    for commit in commit_copies.words_in(archive.path(topic), PROGRESS):
        if commit.version <= version:
            return [] if commit.said["contract"] == contract.of(topic) else merge(found)
        found += [(start, end) for start, end in commit.said.get("changed", ())]
    return merge(found)


def records(spark: SparkSession, topic: Topic, sources: Sources) -> DataFrame:
    """Every record of both tables, as decode takes them, with the ingest that it came with."""
    found = []
    for where, version, value in (
        (archive.path(topic), sources.archive, "_value"),
        (archive.quarantine_path(topic), sources.quarantine, "_raw"),
    ):
        rows = spark.read.format("delta").option("versionAsOf", version).load(where)
        found.append(
            rows.where(F.col("_ingest") <= sources.through).select(
                F.col("_partition").alias("partition"),
                F.col("_offset").alias("offset"),
                F.col("_broker_time").alias("timestamp"),
                F.col(value).alias("value"),
                "_key",
                "_ingest",
            )
        )
    return found[0].unionByName(found[1])


def check_bytes(spark: SparkSession, topic: Topic, sources: Sources) -> None:
    """Refuse where the archive has rows without their bytes: a valid record always had some."""
    rows = spark.read.format("delta").option("versionAsOf", sources.archive).load(archive.path(topic))
    without = rows.where((F.col("_ingest") <= sources.through) & F.col("_value").isNull()).count()
    if without:
        raise AnswerIsNo(
            f"{without:,} archived records have no bytes (TALLY_ARCHIVE_BYTES was false), so they cannot be decoded "
            "under the contract that the topic now has",
            field=topic.name,
            cure=f"take the change of topic {topic.name} (or of TALLY_SKEW) back; or {archive.aside(topic)}",
        )


def check_held(spark: SparkSession, topic: Topic, last: Ingest, sources: Sources) -> None:
    """Refuse to decode what is not all that was written: counts and bytes of both tables together."""
    commit_copies.complete(topic, last)
    versions = {"archive": sources.archive, "quarantine": sources.quarantine}
    both = [verification.read(spark, topic, place, versions[place], sources.through) for place in verification.PLACES]
    kept, refused = (rows.select(*RECORD) for rows in both)
    wrong = verification.together(kept.unionByName(refused), topic, last.era, sources.through)
    if wrong:
        raise verification.refusal(
            topic, verification.verify(spark, verification.Extent(topic=topic, deep=True)) or wrong
        )


def write(spark: SparkSession, topic: Topic, last: Ingest, sources: Sources, earlier: Words | None) -> None:
    """One commit of the quarantine, unless it was made before, and one of the archive.

    All is decoded once for the counts and once for each table: to keep it in between would take more than a heap.
    """
    newest = next(commit_copies.words_in(archive.path(topic), PROGRESS))
    offsets = sum(number for _, number in newest.said["counts"]["archived"])
    decoded = decode(records(spark, topic, sources), topic, "_key", "_ingest", together=are_many(offsets))
    hours = hourly(decoded, topic).persist(StorageLevel.MEMORY_AND_DISK)
    changed = changes(spark, topic, newest, sources, hours)
    counted = manifest.count(hours)
    plan: dict[str, Any] = {
        **{name: newest.said[name] for name in ("topic", "topic_id", "since", "ranges", "gaps")},
        "seq": last.seq,
        "era": last.era + 1,
        "from": last.contract,
        "contract": contract.of(topic),
        "event_time": topic.event_time,
        "sources": asdict(sources),
    }
    failpoint("redecode.before_quarantine")
    if earlier is None or earlier.said["contract"] != contract.of(topic):
        said = delta.words("redecode", **plan, manifest=counted.quarantine.as_words())
        overwrite(archive.quarantine_rows(decoded, topic), archive.quarantine_path(topic), said)
        archive.check_written(topic, archive.quarantine_path(topic), "redecode", counted.quarantine.count)
    failpoint("redecode.between_quarantine_and_archive")
    told = {**commit_copies.counts(counted), "changed": changed, "manifest": counted.archive.as_words()}
    archive.skip_by_time(spark, topic)
    overwrite(archive.archive_rows(decoded, topic), archive.path(topic), delta.words("redecode", **plan, **told))
    archive.check_written(topic, archive.path(topic), "redecode", counted.archive.count)
    failpoint("redecode.after_archive")


def overwrite(rows: DataFrame, where: str, words: str) -> None:
    """Put rows, and their columns, in the place of all that a table holds."""
    (
        rows.write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .partitionBy("_date")
        .option("compression", archive.COMPRESSION)
        .option("userMetadata", words)
        .save(where)
    )


def changes(spark: SparkSession, topic: Topic, before: Words, sources: Sources, hours: DataFrame) -> list[Range]:
    """The hours of event time whose valid records are not what they were; all there are where columns are others."""
    rows = spark.read.format("delta").option("versionAsOf", sources.archive).load(archive.path(topic))
    rows = rows.where(F.col("_ingest") <= sources.through)
    now = {row["_cell"]: Sums.of(row) for row in summed(hours.where("_reason IS NULL"), "_cell").collect()}
    wanted, time = spark.createDataFrame([], topic.ddl).dtypes, before.said["event_time"]
    if time != topic.event_time or not set(wanted) <= set(rows.dtypes):
        differ = {*now, *(row[0] for row in rows.select(whole(F.unix_millis(time), HOUR)).distinct().collect())}
    else:
        old = hourly(verification.as_records(rows, topic, "archive"), topic)
        was = {row["_cell"]: Sums.of(row) for row in summed(old, "_cell").collect()}
        differ = {cell for cell in was.keys() | now.keys() if not verification.same(was.get(cell), now.get(cell))}
    return merge(((cell * HOUR, (cell + 1) * HOUR) for cell in differ), most=MOST_RANGES)
