"""Replays the slots that differ, and puts a cause to each row and each event that lies between the layers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis, iso, millis
from tally.base.failpoints import failpoint
from tally.base.json_values import finite
from tally.base.settings import settings
from tally.catalog.ranges import event_ranges, merge, windows_of
from tally.catalog.spec import Topic
from tally.host import lock
from tally.kinds import fates, kind_of
from tally.lake import delta
from tally.lake.session import jvm_pid
from tally.reconcile import trimmed
from tally.reconcile.causes import JOINED, UNEXPLAINED
from tally.reconcile.comparison import Difference
from tally.reconcile.cut import Cut, reaching_back
from tally.reconcile.layers import Layers
from tally.reconcile.replay import expected_rows
from tally.reconcile.rows.differences import limits_frame, not_the_same
from tally.sources.ranged import in_ranges

AUDITED = ("batch", "stream", "replayed")
# A comparison shows this many rows; the audit table holds all of them.
SHOWN = 20
SPLIT = "split"
Cells = dict[tuple[Any, ...], set[str]]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What lies between the layers: rows that differ, how many of them nothing explains, and the events behind them."""

    different: int = 0
    rounding: int = 0  # rows of the same events, which differ in floating sums only
    unexplained: int = 0
    rows: Sequence[Difference] = ()  # the first that differ
    events: Mapping[str, int] = field(default_factory=dict)  # by cause
    unexplained_by_slot: Mapping[int, int] = field(default_factory=dict)  # rows
    events_by_slot: Mapping[int, int] = field(default_factory=dict)  # those that the stream had read at the cut

    @property
    def windows(self) -> int:
        return self.different + self.rounding


def explain(spark: SparkSession, cut: Cut, both: Layers, number: int) -> Explanation:
    """Put a cause to each row that is not the same in both layers, and keep it in the audit table under this id."""
    pipeline, kind, differing = cut.pipeline, kind_of(cut.pipeline), both.differing
    step = millis(pipeline.window.step)
    slots = merge((slot, slot + step) for slot in differing)
    around = kind.replay_reads(spark, {slot: one.last_end for slot, one in differing.items()}, cut.stated.versions)
    if around != event_ranges(pipeline, slots):  # further than the comparison looked
        cut = reaching_back(cut, expected_rows.first_offsets(cut, around))
    frames = [
        expected_rows.tagged_events(spark, cut, topic, times).cache()
        for topic, times in zip(pipeline.reads, around, strict=True)
    ]
    try:
        sides = {side: in_ranges(rows, "window_start", slots) for side, rows in both.sides.items()}
        keys = expected_rows.differing_keys(sides["batch"], sides["stream"], pipeline)
        affected = [kind.narrowed(frame, keys) for frame in frames]
        behind = events_behind(affected, cut, set(differing))
        sides["replayed"] = expected_rows.replayed(cut, affected, slots)
        sides["restated"] = expected_rows.restated(cut, affected, slots)
        rows = not_the_same(sides, pipeline, limits_frame(spark, {slot: both.limit(slot) for slot in differing}))
        unproven = trimmed.unproven(spark, cut, sorted(differing), behind.touched_by(fates.SKIPPED))
        rows = with_causes(rows, cut, behind.cells, unproven).cache()
        found = explanation(rows, cut, behind)
        write_audit(rows, cut, number)
        rows.unpersist()
    finally:
        for frame in frames:
            frame.unpersist()
    return found


def causes(frame: DataFrame, topic: Topic, cut: Cut) -> DataFrame:
    """The events that one layer counts and the other doesn't, each once, with `_cause` and `_cell`."""
    kind, step = kind_of(cut.pipeline), F.lit(millis(cut.pipeline.window.step))
    cell = F.unix_millis(topic.event_time) - F.pmod(F.unix_millis(topic.event_time), step)
    counted, found, time = F.col("_counted"), F.col("_fate"), F.unix_micros(topic.event_time)
    # It is late too where any of its windows was over before its micro-batch.
    over = F.lit(cut.late_rule == "window") & (kind.over_at(time, every=False) <= late_at(cut))
    cause = (
        F.when(counted & found.isin(fates.ACCEPTED, fates.IN_FLIGHT) & over, fates.LATE)
        .when(counted & F.col("_split"), SPLIT)
        .when(~counted & (found == fates.ACCEPTED), fates.DUPLICATE)
        .when(counted & (found != fates.ACCEPTED), late_already(found, time, cut))
    )
    marked = kind.with_split(frame, cut.history).withColumns({"_cause": cause, "_cell": cell})
    return marked.where("_cause IS NOT NULL AND NOT _filtered")


def late_at(cut: Cut) -> Column:
    """The watermark (microseconds) that decided, or will, whether an event is late."""
    return F.coalesce("_late_at", F.lit(cut.last.watermark)) * 1000


def late_already(found: Column, time: Column, cut: Cut) -> Column:
    """An event that the stream has yet to read is late already where the watermark has passed its microsecond."""
    return F.when((found == fates.IN_FLIGHT) & (time <= cut.last.watermark * 1000), fates.LATE).otherwise(found)


@dataclass(frozen=True, kw_only=True)
class Behind:
    """Events by cause, the causes at each slot (and key, where the topic carries its columns), and events by slot."""

    events: Counter[str]
    cells: Cells
    by_slot: Counter[int]

    def touched_by(self, cause: str) -> set[int]:
        """The slots with an event of this cause."""
        return {cell[0] for cell, causes in self.cells.items() if cause in causes}


def events_behind(frames: Sequence[DataFrame], cut: Cut, differing: Set[int]) -> Behind:
    """What stands behind the differences; only events are counted that may be part of a slot that differs."""
    kind = kind_of(cut.pipeline)
    events, by_slot = Counter[str](), Counter[int]()
    cells: Cells = defaultdict(set)
    for at, (frame, topic) in enumerate(zip(frames, cut.pipeline.reads, strict=True)):
        keys = key_columns(cut, topic)
        found = causes(frame, topic, cut).groupBy("_cause", "_cell", *keys).count().collect()
        for row in found:
            near = slots(cut, row["_cell"], first=at == 0)
            if kind.concerned(near, differing):
                events[row["_cause"]] += row["count"]
                by_slot[row["_cell"]] += row["count"] if row["_cause"] != fates.IN_FLIGHT else 0
            key = tuple(row[name] for name in keys)
            for slot in near:
                cells[(slot, *key)].add(row["_cause"])
    return Behind(events=events, cells=cells, by_slot=by_slot)


def key_columns(cut: Cut, topic: Topic) -> list[str]:
    """The key, where a single event carries all of it; a key made by the function or a join is not known per event."""
    known = kind_of(cut.pipeline).by_event and set(cut.pipeline.key) <= set(topic.columns)
    return list(cut.pipeline.key) if known else []


def slots(cut: Cut, cell: int, *, first: bool) -> range:
    """The slots whose windows an event in a cell may be part of."""
    step = millis(cut.pipeline.window.step)
    start, end = windows_of((cell, cell + step), cut.pipeline, first=first)
    return range(start, end, step)


def cause_of(cut: Cut, cells: Cells, slot: int, end: int, key: tuple[Any, ...]) -> str:
    """The causes at a differing row's window and key, as one text; nothing where no event has one there.

    `key` is empty where no single event tells its own.
    """
    slots = kind_of(cut.pipeline).causes_from(slot, end)
    found: set[str] = set().union(*(cells.get((one, *key), set()) for one in slots))
    return JOINED.join(sorted(found))


def not_sent(*_: Any) -> None:
    """Stands for the author's function where only the declaration is needed."""
    raise AssertionError("a worker that gives causes calls no function of a pipeline")


def with_causes(rows: DataFrame, cut: Cut, cells: Cells, unproven: Collection[int]) -> DataFrame:
    """Rows with `cause`, `explained` and `_rounding`: floating sums of the same events, and no difference at all.

    No event hides in a rounding: where one is counted in one layer only, a row is a difference however small.
    """
    keyed = bool(key_columns(cut, cut.pipeline.reads[0]))
    # Python's workers get no function of the author's, which may hold what cannot be sent, and no ledger.
    sent = replace(cut, pipeline=replace(cut.pipeline, function=not_sent), batches=cut.batches[-1:])

    def behind(slot: int, end: int, key: Row) -> str:
        if slot in unproven:  # neither the stream nor an earlier seal speaks for it
            return UNEXPLAINED
        return cause_of(sent, cells, slot, end, tuple(key) if keyed else ())

    named = F.udf(behind, "string", useArrow=False)
    caused = rows.withColumn("_events", named("_slot", "_over", F.struct(*cut.pipeline.key)))
    explained = F.col("_explained") & (F.col("_events") != UNEXPLAINED)
    told = F.when(~explained, UNEXPLAINED).when(F.col("_events") == "", "replay").otherwise(F.col("_events"))
    return caused.withColumns(
        {"explained": explained, "cause": told, "_rounding": F.col("_near") & (F.col("_events") == "")}
    )


def explanation(rows: DataFrame, cut: Cut, behind: Behind) -> Explanation:
    """What the rows with their causes come to, and the first of them that are no rounding."""
    different = rounding = 0
    unexplained = Counter[int]()
    for row in rows.groupBy("_rounding", "explained", "_slot").count().collect():
        if row["_rounding"]:
            rounding += row["count"]
            continue
        different += row["count"]
        if not row["explained"]:
            unexplained[row["_slot"]] += row["count"]
    first = rows.where("NOT _rounding").orderBy("explained", "window_start", *cut.pipeline.key).limit(SHOWN).collect()
    return Explanation(
        different=different,
        rounding=rounding,
        unexplained=unexplained.total(),
        rows=[difference(row.asDict(recursive=True), cut) for row in first],
        events=behind.events,
        unexplained_by_slot=unexplained,
        events_by_slot=behind.by_slot,
    )


def difference(row: Mapping[str, Any], cut: Cut) -> Difference:
    """A differing row as a person or a script reads it."""

    def side(values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return None if values is None else {k: plain(v) for k, v in values.items() if k != "_"}

    return Difference(
        window_start=iso(from_millis(row["_slot"])) if row["window_start"] is None else utc(row["window_start"]),
        window_end=utc(row["window_end"]),
        key={name: plain(row[name]) for name in cut.pipeline.key},
        batch=side(row["batch"]),
        stream=side(row["stream"]),
        cause=row["cause"],
    )


def utc(moment: Any) -> str:
    return iso(moment.astimezone())  # Spark hands out naive local times


def plain(value: Any) -> Any:
    return finite(value) if isinstance(value, int | float | str | bool | type(None)) else str(value)


def as_json(side: str, rows: DataFrame) -> Column:
    """A side's measures; null where it has no such row."""
    if len(rows.schema[side].dataType.fieldNames()) == 1:  # no measures: the row is all
        return F.when(F.col(side).isNotNull(), "{}")
    return F.to_json(F.col(side).dropFields("_"))


def write_audit(rows: DataFrame, cut: Cut, number: int) -> None:
    """Append every differing row with its cause, under the comparison's id; a row is (reconciliation, window, key)."""
    pipeline = cut.pipeline
    where = settings().table("audit", pipeline.name)
    table = rows.where("NOT _rounding").select(
        F.lit(number).cast("bigint").alias("reconciliation"),
        "window_start",
        "window_end",
        F.to_json(F.struct(*pipeline.key)).alias("key"),
        *(as_json(side, rows).alias(side) for side in AUDITED),
        "cause",
        "explained",
    )
    with lock.table("audit", pipeline.name, jvm=jvm_pid(rows.sparkSession)):
        said = delta.words("audit", reconciliation=number)
        failpoint("reconcile.before_audit")
        table.coalesce(1).write.format("delta").mode("append").option("userMetadata", said).save(where)
        failpoint("reconcile.after_audit")
