"""Events of random archives under random ledgers: accounted for without a JVM as the replay in Spark does it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))
from comparisons import use_home
from cuts import HOPPING, MINUTE, T0, TUMBLING, cut, micro_batch, restatement

from tally.base.duration import from_millis
from tally.catalog.declare import topic
from tally.catalog.spec import Topic
from tally.reconcile.accounts import Account, counted
from tally.reconcile.cut import Cut
from tally.reconcile.first_pass import events
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.replay import expected_rows
from tally.reconcile.rows.made_of import is_number
from tally.sources import archive

PARTITIONS = 2
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("shop", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.float64()),
        ("_partition", pa.int32()), ("_offset", pa.int64()), ("_broker_time", pa.timestamp("us", "UTC")),
        ("_ingest", pa.int64()), ("_date", pa.date32()),
    ]
)  # fmt: skip
TIMES = [(T0, T0 + 4 * MINUTE)]
numbers = st.integers(0, 5)
amounts = st.none() | st.integers(-99, 99).map(lambda units: units / 4)  # sums of them are exact


@st.composite
def archives(draw: st.DrawFn, name: str) -> tuple[Topic, list[dict[str, Any]], Cut]:
    """A topic with or without ids, its archived events, and a ledger that skips, doubles and lags."""
    unique = draw(st.sampled_from([None, "id", "id"]))
    orders = topic(
        name, schema="id BIGINT, shop INT, at TIMESTAMP, amount DOUBLE", event_time="at", lateness="1 minute",
        unique=unique,
    )  # fmt: skip
    rows, ends = [], []
    for partition in range(PARTITIONS):
        count = draw(st.integers(0, 12))
        ends.append(count)
        for offset in range(count):
            at = from_millis(T0 + draw(st.integers(-2 * MINUTE, 6 * MINUTE)) // 5000 * 5000)
            rows.append(
                {
                    "id": draw(st.integers(0, 9)), "shop": 1, "at": at, "amount": draw(amounts),
                    "_partition": partition, "_offset": offset, "_ingest": draw(numbers),
                    "_broker_time": from_millis(T0 + draw(numbers)), "_date": at.date(),
                }
            )  # fmt: skip
    batches, late, starts = [], T0 - 2 * MINUTE, [0] * PARTITIONS
    for number in range(draw(st.integers(1, 4))):
        ranges = {}
        for partition in draw(st.permutations(range(PARTITIONS))):
            start = max(0, starts[partition] + draw(st.sampled_from([0, 0, 0, 1, -1])))
            to = max(start, draw(st.integers(start, max(start, ends[partition]))))
            ranges[partition], starts[partition] = (start, to), to
        newer = late + draw(st.integers(0, 2 * MINUTE))
        batches.append(replace(micro_batch(number, ranges, watermark=newer, late=late), ranges={name: ranges}))
        late = newer
    pipeline = replace(draw(st.sampled_from([TUMBLING, HOPPING])), reads=(orders,))
    rule = "event" if unique else draw(st.sampled_from(["event", "window", "none"]))
    stated = restatement(versions={name: 0})
    return orders, rows, cut(*batches, of=pipeline, stated=stated, late_rule=rule)


def written(orders: Topic, rows: Sequence[dict[str, Any]]) -> None:
    write_deltalake(
        archive.path(orders), pa.Table.from_pylist(list(rows), SCHEMA), mode="overwrite", partition_by=["_date"]
    )


def by_first_pass(orders: Topic, made: Cut) -> Account:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return events.of_topic(connection, made, orders, TIMES, [one.name for one in orders.schema if is_number(one)])


def told(one: Account) -> Any:
    plain = [dict(one.places), list(one.starts), list(one.events), list(one.newest), list(map(bool, one.differing))]
    return plain, {name: [round(size, 9) for size in sizes.tolist()] for name, sizes in one.scale.items()}


def test_the_sizes_of_all_numbers_that_are_summed_are_told() -> None:
    """Sums of DECIMALs as DOUBLEs round too: where they cancel, only the sizes tell of it."""
    paid = topic("paid", schema="at TIMESTAMP, amount DECIMAL(10,2), n BIGINT", event_time="at", lateness="1 minute")
    assert events.sized([paid], [frozenset({(0, "amount")})]) == [["amount"]]


COUNT = iter(range(10**6))


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        use_home(patch, tmp_path_factory.mktemp("home"))
        yield


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data())
def test_every_event_is_where_the_replay_puts_it(spark: SparkSession, data: st.DataObject) -> None:
    orders, rows, made = data.draw(archives(f"orders{next(COUNT)}"))
    written(orders, rows)
    spark_says = counted(expected_rows.tagged_events(spark, made, orders, TIMES), orders, made)
    assert told(by_first_pass(orders, made)) == told(spark_says)


def event(offset: int, **given: Any) -> dict[str, Any]:
    at = from_millis(T0)
    row = {"id": offset, "shop": 1, "at": at, "amount": 1.0, "_partition": 0, "_offset": offset, "_ingest": 0}
    return {**row, "_broker_time": at, "_date": at.date(), **given}


def with_ids(name: str) -> tuple[Topic, Cut]:
    orders = topic(
        name, schema="id BIGINT, shop INT, at TIMESTAMP, amount DOUBLE", event_time="at", lateness="1 minute",
        unique="id",
    )  # fmt: skip
    batch = replace(micro_batch(0, {}, late=T0 - MINUTE), ranges={name: {0: (0, 500)}})
    of = replace(TUMBLING, reads=(orders,))
    return orders, cut(batch, of=of, stated=restatement(versions={name: 0}), late_rule="event")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([event(0), event(0)], "twice"),
        ([event(0, id=None)], "no place, time or id"),
        ([event(offset, id=7) for offset in range(events.MOST_COPIES + 1)], "copies"),
    ],
)
def test_an_archive_that_is_no_such_thing_is_left_to_spark(rows: list[dict[str, Any]], why: str) -> None:
    orders, made = with_ids(f"odd{next(COUNT)}")
    written(orders, rows)
    with pytest.raises(Unsure, match=why):
        by_first_pass(orders, made)
