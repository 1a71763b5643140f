"""Of an id's copies near in time the one that is read first stays, whatever the micro-batches and whenever one ends."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tally.speed.shared import ids as shared_ids
from tally.speed.shared.hashes import hashes
from tally.speed.shared.ids import Ids

MINUTE = 60_000
LATENESS = 2 * MINUTE
Place = tuple[int, int]


def events(*rows: tuple[int, int, object, int]) -> pa.Table:
    """(partition, offset, id, milliseconds)."""
    columns = list(zip(*rows, strict=True)) or [[], [], [], []]
    kind = pa.string() if rows and isinstance(rows[0][2], str) else pa.int64()
    return pa.table(
        {
            "_partition": pa.array(columns[0], pa.int32()),
            "_offset": pa.array(columns[1], pa.int64()),
            "_id": pa.array(columns[2], kind),
            "_time": pa.array([time * 1000 for time in columns[3]], pa.int64()),
        }
    )


def left_out(ids: Ids, table: pa.Table, watermark: int = 0) -> set[Place]:
    out, seen = ids.told_apart(table, watermark)
    ids.put(seen)
    return {(row["_partition"], row["_offset"]) for row in out.to_pylist()}


def test_within_a_micro_batch_the_lower_partition_and_offset_is_read_first() -> None:
    assert left_out(Ids(LATENESS), events((1, 0, "a", 5), (0, 9, "a", 6), (0, 3, "a", 7))) == {(1, 0), (0, 9)}


def test_of_a_later_micro_batch_copies_are_left_out() -> None:
    ids = Ids(LATENESS)
    assert left_out(ids, events((0, 0, 7, 10))) == set()
    assert left_out(ids, events((0, 1, 7, 10), (0, 2, 8, 10))) == {(0, 1)}


@pytest.mark.parametrize(("apart", "copy"), [(LATENESS, True), (LATENESS + 1, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_further_apart_than_the_lateness_are_two_events(apart: int, copy: bool, sign: int) -> None:
    ids, time = Ids(LATENESS), 10 * LATENESS
    left_out(ids, events((0, 0, 7, time)))
    assert bool(left_out(ids, events((0, 1, 7, time + sign * apart)))) is copy


def test_a_copy_of_one_that_was_left_out_is_left_out_too() -> None:
    """So that nothing but an event's neighbours decide what becomes of it."""
    ids, step = Ids(LATENESS), LATENESS - 1
    left_out(ids, events((0, 0, 7, 0), (0, 1, 7, step)))
    assert left_out(ids, events((0, 2, 7, 2 * step))) == {(0, 2)}


@pytest.mark.parametrize("apart", [1, LATENESS + 1])
def test_an_id_may_have_any_number_of_copies(apart: int) -> None:
    """A producer that gives all of its events one id; to look at them two by two would take hours."""
    ids, count = Ids(LATENESS), 100_000
    table = events(*((0, at, "", at * apart) for at in range(count)))
    for expected in (count if apart > LATENESS else 1, 0):
        out, brought = ids.told_apart(table, watermark=-1)
        ids.put(brought)
        assert out.num_rows == count - expected


def test_late_ones_are_left_out_and_make_no_other_a_copy() -> None:
    ids = Ids(LATENESS)
    assert left_out(ids, events((0, 0, 7, 100), (0, 1, 7, 101)), watermark=100) == {(0, 0)}


def test_what_is_over_is_forgotten() -> None:
    ids = Ids(LATENESS)
    ids.put(events((0, 0, 7, 10 * MINUTE), (0, 1, 8, 20 * MINUTE)).select(["_id", "_time"]))
    ids.forget(12 * MINUTE - 1)
    assert sorted(ids.held()["_id"].to_pylist()) == [7, 8]
    ids.forget(20 * MINUTE)
    assert ids.held().to_pylist() == [{"_id": 8, "_time": 20 * MINUTE * 1000}]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.decimal128(25, 2), pa.timestamp("us", "UTC"), pa.binary()]
)
def test_all_that_is_held_can_be_restored(kind: pa.DataType) -> None:
    ids, again = Ids(LATENESS), Ids(LATENESS)
    values = (
        pa.array([b"1", b"2"], pa.binary())
        if kind == pa.binary()
        else pa.array([1, 2], pa.int64()).cast(kind, safe=False)
    )
    ids.put(pa.table({"_id": values, "_time": [5, 6]}))
    again.restore([ids.held()], 0)
    assert {row["_id"]: row["_time"] for row in again.held().to_pylist()} == dict(
        zip(values.to_pylist(), [5, 6], strict=True)
    )
    assert again.held() == ids.held() and again.held().schema.field("_id").type == kind


@pytest.mark.parametrize(
    ("before", "after", "copies"),
    [
        (pa.int32(), pa.int64(), 1),
        (pa.int64(), pa.decimal128(25, 2), 1),
        (pa.string(), pa.large_string(), 1),
        (pa.int64(), pa.string(), 0),
        (pa.string(), pa.int64(), 0),
    ],
    ids=str,
)
def test_ids_of_another_type_are_copies_where_they_are_equal(
    before: pa.DataType, after: pa.DataType, copies: int
) -> None:
    """A topic's contract was changed, and its stream goes on."""
    ids, place = Ids(LATENESS), [("_partition", pa.int32()), ("_offset", pa.int64())]
    for at, kind in enumerate((before, after)):
        columns = [pa.array([0], pa.int32()), pa.array([at]), pa.array([7]).cast(kind), pa.array([5])]
        table = pa.table(columns, schema=pa.schema([*place, ("_id", kind), ("_time", pa.int64())]))
        assert len(left_out(ids, table, watermark=-1)) == at * copies
        assert ids.held().schema.field("_id").type == kind
    assert len(ids) == 1 + copies


def identified(kind: pa.DataType, *values: object) -> pa.Table:
    """Events at one time, one offset after the other, with these ids."""
    count = len(values)
    places = {"_partition": pa.array([0] * count, pa.int32()), "_offset": pa.array(range(count), pa.int64())}
    return pa.table({**places, "_id": pa.array(values, kind), "_time": pa.array([5] * count, pa.int64())})


@pytest.mark.parametrize("kind", [pa.decimal128(20, 0), pa.decimal128(38, 0), pa.decimal128(38, 18)], ids=str)
def test_whole_numbers_that_became_decimals_are_copies(kind: pa.DataType) -> None:
    numbers = [0, 1, -1, -2, 2**61 - 1, 2**62, 2**63 - 1, -(2**63)]
    ids = Ids(LATENESS)
    assert left_out(ids, identified(pa.int64(), *numbers), watermark=-1) == set()
    assert len(left_out(ids, identified(kind, *map(Decimal, numbers)), watermark=-1)) == len(numbers)


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((pa.int64(), -7), (pa.decimal128(38, 30), Decimal(-7))),
        ((pa.decimal128(38, 38), Decimal(0)), (pa.int64(), 0)),
        ((pa.decimal128(38, 0), Decimal(10**37)), (pa.decimal128(38, 38), Decimal(0))),
        ((pa.binary(), b"abc"), (pa.string(), "abc")),
        ((pa.string(), "abc"), (pa.binary(), b"abc")),
    ],
    ids=str,
)
def test_a_stream_goes_on_with_ids_of_any_other_type(
    before: tuple[pa.DataType, object], after: tuple[pa.DataType, object], restored: bool
) -> None:
    """No DECIMAL may have the digits of both; a text is no copy of bytes, and is remembered as a text."""
    ids, (kind, value) = Ids(LATENESS), before
    assert left_out(ids, identified(kind, value), watermark=-1) == set()
    kind, new = after
    for number in range(4):
        expected = {(0, 0)} if number or new == value else set()
        assert left_out(ids, identified(kind, new), watermark=-1) == expected
        if restored:
            held, ids = ids.held(), Ids(LATENESS)
            ids.restore([held], 0)


def test_ids_of_another_column_tell_of_no_copy() -> None:
    """The topic's contract names another column: what is remembered of the one before are other things."""
    sales, tickets, again = (Ids(LATENESS, of=column) for column in ("sale", "ticket", "sale"))
    left_out(sales, identified(pa.int64(), 7))
    kept = [sales.lasting(sales.held(), 0), sales.held(), Ids(LATENESS, of="sale").held()]
    tickets.restore(kept, 0)
    again.restore(kept, 0)
    assert left_out(tickets, identified(pa.int64(), 7), watermark=-1) == set()
    assert left_out(again, identified(pa.int64(), 7), watermark=-1) == {(0, 0)}
    older = Ids(LATENESS, of="ticket")  # an inbox of before does not say it
    older.restore([sales.held().replace_schema_metadata(None)], 0)
    assert len(older) == 1


@pytest.mark.parametrize("alike", [False, True], ids=["", "all hashes are the same"])
@pytest.mark.parametrize("seed", range(20))
def test_the_same_is_left_out_whatever_is_forgotten_and_restored(
    seed: int, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the rule as it is said, over all copies; the watermark lags as it likes, and never falls."""
    if alike:
        monkeypatch.setattr(shared_ids, "hashes", lambda ids: np.zeros(len(ids), np.uint64))
    rng = random.Random(seed)
    ids, watermark, offset, read = Ids(LATENESS), 0, 0, list[tuple[object, int]]()
    for _ in range(30):
        rows = []
        for _ in range(rng.randrange(8)):
            rows.append((0, offset, rng.randrange(4), max(0, watermark + rng.randrange(-2, 8) * MINUTE)))
            offset += 1
        expected = set()
        for _, place, one, time in rows:
            late = time <= watermark
            near = any(other == one and abs(at - time) <= LATENESS for other, at in read)
            if late or near:
                expected.add((0, place))
            if not late:
                read.append((one, time))
        assert left_out(ids, events(*rows), watermark) == expected
        watermark += rng.choice([0, 0, 1, MINUTE // 2, 3 * MINUTE])
        ids.forget(watermark)
        assert ids.lasting(ids.held(), watermark).num_rows == sum(at > watermark - LATENESS for _, at in read)
        if rng.random() < 0.2:
            kept, ids = ids.held(), Ids(LATENESS)
            ids.restore([kept], watermark)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([0, -1, 127], pa.int8()), pa.array([0, -1, 127], pa.int64())),
        (pa.array(["", "a", "\u00e9" * 20]), pa.array(["", "a", "\u00e9" * 20], pa.large_string())),
        (pa.array(["1.5", "0"]).cast(pa.decimal128(4, 1)), pa.array(["1.50", "0.00"]).cast(pa.decimal128(30, 2))),
    ],
    ids=["whole numbers", "text", "decimals"],
)
def test_equal_ids_have_equal_hashes_whatever_their_types(one: pa.Array, other: pa.Array) -> None:
    some, others = (hashes(pa.chunked_array([ids])) for ids in (one, other))
    assert some.dtype == np.uint64 and some.tolist() == others.tolist() and len(set(some.tolist())) == len(one)
