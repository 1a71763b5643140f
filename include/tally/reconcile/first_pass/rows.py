"""The rows of both layers by slot, compared and digested as Spark does it (rows/differences.py, rows/hashes.py).

Whatever Spark would have to choose at random is not chosen here: two rows of one window and key are left to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tally.base.duration import millis
from tally.base.sql_text import quoted
from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline
from tally.reconcile.first_pass import unsure
from tally.reconcile.first_pass.tables import Snapshot, duckdb_type
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.rows import rounding, texts
from tally.reconcile.rows.differences import Slot
from tally.reconcile.rows.digest import NOTHING, Digest
from tally.reconcile.rows.hashes import TEXTS
from tally.reconcile.rows.java_digits import Digits

if TYPE_CHECKING:
    import duckdb

Numbers = np.ndarray[Any, np.dtype[Any]]
WINDOW = ("window_start", "window_end")
FLOATING = {"double": 53, "float": 24}  # with the bits of each
# Rows of which the texts are made and hashed at a time: some 500 bytes each, 250 MB.
AT_A_TIME = 500_000
# Years that Spark and DuckDB write alike; so they do days.
FIRST, LAST = "0001-01-01", "9999-12-31"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The columns of a pipeline's rows in the order in which they are hashed."""

    types: Mapping[str, str]
    keys: Sequence[str]

    @property
    def floating(self) -> list[str]:
        return [name for name, kind in self.types.items() if kind in FLOATING]

    @property
    def exact(self) -> list[str]:
        """The measures of which no bit may differ."""
        return [name for name in self.types if name not in (*self.keys, *self.floating)]


def shape_of(batch: Snapshot, stream: Snapshot, pipeline: Pipeline) -> Shape:
    """The columns of both tables; refused where these differ, or are of a type that isn't known to be told alike."""
    types = {name: kind for name, kind in batch.types.items() if name != "_date"}
    keys = [*WINDOW, *pipeline.key]
    if stream.types != {**types, "_batch": "long", "_date": "date"}:
        raise Unsure("the layers' tables have other columns")
    for name, kind in types.items():
        duckdb_type(kind)
        if name.startswith("_") or (name in keys and kind in FLOATING):
            raise Unsure(f"column {name} is {'ours' if name.startswith('_') else 'a key of type ' + kind}")
        if kind in ("decimal(38,38)", "timestamp_ntz"):
            raise Unsure(f"column {name} is of type {kind}")
    shape = Shape(types=types, keys=keys)
    if shape.floating:
        unsure.check_java()
    return shape


def by_slot(
    connection: duckdb.DuckDBPyConnection, batch: Snapshot, stream: Snapshot, pipeline: Pipeline,
    ranges: Sequence[Range], *, until: int | None, whole: bool,
) -> dict[int, Slot]:  # fmt: skip
    """Every slot that has a row in either layer; `until` is the last `_batch` to look at, None: all.

    `whole` has each value enter every digest whole, as where nothing is summed.
    """
    shape = shape_of(batch, stream, pipeline)
    names, keys = list(shape.types), ", ".join(map(quoted, shape.keys))
    early = "true" if until is None else f"_batch <= {until}"
    connection.execute(
        f"CREATE TEMP TABLE batch AS {batch.read(connection, names, WINDOW[0], ranges)};"
        f"CREATE TEMP TABLE written AS {stream.read(connection, [*names, '_batch'], WINDOW[0], ranges, early)};"
        f"CREATE TEMP TABLE stream AS SELECT * EXCLUDE (_batch) FROM written "
        f"QUALIFY rank() OVER (PARTITION BY {keys} ORDER BY _batch DESC) = 1"
    )
    unsure.check_size(connection, "batch")
    unsure.check_size(connection, "stream")
    connection.execute(f"CREATE TEMP TABLE joined AS {joined_rows(shape)}")
    check_rows(connection, shape)
    connection.execute("DROP TABLE batch; DROP TABLE written; DROP TABLE stream")
    joined = connection.sql("FROM joined").to_arrow_table().combine_chunks()
    return slots_of(joined, shape, millis(pipeline.window.step) * 1000, whole=whole) if joined.num_rows else {}


def check_rows(connection: duckdb.DuckDBPyConnection, shape: Shape) -> None:
    """Refuse rows that are not what both layers write, each of one window and key once."""
    times = [name for name, kind in shape.types.items() if kind in ("timestamp", "date")]
    beyond = " OR ".join(f"NOT ({plain(quoted(n), shape.types[n])} BETWEEN '{FIRST}' AND '{LAST}')" for n in times)
    nulls = " OR ".join(f"{quoted(name)} IS NULL" for name in WINDOW)
    checks = {
        "a window has no bounds": f"SELECT 1 FROM {{side}} WHERE {nulls}",
        "a time is of no ordinary year": f"SELECT 1 FROM {{side}} WHERE {beyond}",
    }
    for why, query in checks.items():
        for side in ("batch", "stream"):
            if connection.execute(f"{query.format(side=side)} LIMIT 1").fetchall():
                raise Unsure(why)
    if connection.execute("SELECT 1 FROM written WHERE _batch IS NULL LIMIT 1").fetchall():
        raise Unsure("a row is of no micro-batch")
    if has_doubles(connection, shape):
        raise Unsure("a window and key has two rows")


def has_doubles(connection: duckdb.DuckDBPyConnection, shape: Shape) -> bool:
    """Whether a side has two rows of one window and key. Of those that the other side has too, the join is longer then;
    those that it lacks are few, and looked through.
    """
    counts = "SELECT count(*), count(*) FILTER (batch AND stream) FROM joined"
    sides = "(SELECT count(*) FROM batch) + (SELECT count(*) FROM stream)"
    ((rows, matched, total),) = connection.execute(f"SELECT *, {sides} FROM ({counts})").fetchall()
    if rows + matched != total:
        return True
    keys, met = ", ".join(map(quoted, shape.keys)), []
    for side, other in (("batch", "stream"), ("stream", "batch")):
        same = " AND ".join(f"o.{quoted(name)} IS NOT DISTINCT FROM m.{quoted(name)}" for name in shape.keys)
        lone = f"SELECT {keys} FROM {side} AS m ANTI JOIN {other} AS o ON {same}"
        met += connection.execute(f"SELECT 1 FROM ({lone}) GROUP BY ALL HAVING count(*) > 1 LIMIT 1").fetchall()
    return bool(met)


def joined_rows(shape: Shape) -> str:
    """SQL of one row per window and key: what it says in each layer, and the batch's texts to be hashed."""
    said = [f"b.{quoted(n)} IS NOT DISTINCT FROM s.{quoted(n)}" for n in shape.exact]
    columns = [
        *(f"epoch_us(coalesce(b.{name}, s.{name})) AS {name}" for name in WINDOW),
        "b._there IS NOT NULL AS batch", "s._there IS NOT NULL AS stream", f"{' AND '.join(said) or 'true'} AS alike",
        *(f"b.{quoted(n)}::DOUBLE AS b{at}, s.{quoted(n)}::DOUBLE AS s{at}" for at, n in enumerate(shape.floating)),
        *(f"{written(n, kind)} AS t{at}" for at, (n, kind) in enumerate(shape.types.items()) if kind not in FLOATING),
    ]  # fmt: skip
    same = " AND ".join(f"b.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)}" for name in shape.keys)
    sides = "(SELECT *, 1 AS _there FROM batch) AS b FULL OUTER JOIN (SELECT *, 1 AS _there FROM stream) AS s"
    return f"SELECT {', '.join(columns)} FROM {sides} ON {same}"


def plain(column: str, kind: str) -> str:
    """SQL of a time in UTC; a cast would ask a calendar for the zone of each, which takes longer than all else."""
    return f"make_timestamp(epoch_us({column}))" if kind == "timestamp" else f"{column}::TIMESTAMP"


def written(name: str, kind: str) -> str:
    """SQL of a value's text, as Spark casts it."""
    column = f"b.{quoted(name)}"
    if kind == "timestamp":
        return f"{plain(column, kind)}::VARCHAR"
    if kind.startswith("decimal("):  # of digits behind the point only, DuckDB writes no zero before it
        digits, scale = (int(part) for part in kind[8:-1].split(","))
        return f"{column}::DECIMAL({max(digits, min(scale + 1, 38))}, {scale})::VARCHAR"
    return f"{column}::VARCHAR"


def slots_of(rows: pa.Table, shape: Shape, step: int, *, whole: bool) -> dict[int, Slot]:
    """The slots of joined rows; `step` is that of the grid, in microseconds."""
    start, over = (rows.column(name).to_numpy() for name in WINDOW)
    starts, of = np.unique(start // 1000 - start // 1000 % (step // 1000), return_inverse=True)
    order = np.argsort(of, kind="stable")
    edges = np.searchsorted(of[order], np.arange(len(starts)))

    def by_slot(ufunc: Any, values: Numbers) -> list[Any]:
        found: list[Any] = ufunc.reduceat(values[order], edges).tolist()
        return found

    batch, stream = (flag(rows, name) for name in ("batch", "stream"))
    relative, absolute = apart(rows, shape)
    both, exact = batch & stream, flag(rows, "alike")
    most = np.where(both & exact, np.max([np.zeros(len(of)), *relative], axis=0), rounding.APART)
    finite = most < rounding.APART
    counts = {
        "rows": batch, "stream_rows": stream, "same": most == 0, "other": ~finite, "close": finite & (most > 0),
    }  # fmt: skip
    told = {name: by_slot(np.add, which.astype("int64")) for name, which in counts.items()}
    told["last_end"] = by_slot(np.maximum, -(-over // 1000))
    for name, sizes in (("apart", relative), ("apart_by", absolute)):
        columns = [by_slot(np.maximum, np.where(finite, one, 0.0)) for one in sizes]
        told[name] = [list(one) for one in zip(*columns, strict=True)] or [[] for _ in starts]
    told["digest"] = digests(rows, shape, batch, by_slot, told["rows"], whole=whole)
    return {int(slot): Slot(**{name: values[at] for name, values in told.items()}) for at, slot in enumerate(starts)}


def flag(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = rows.column(name).to_numpy().astype(bool)
    return found


def numbers(rows: pa.Table, name: str) -> tuple[Numbers, Numbers]:
    """A column of numbers, and where it has none."""
    column = rows.column(name)
    null = column.is_null().to_numpy().astype(bool)
    return column.fill_null(0.0).to_numpy().astype("float64"), null


def apart(rows: pa.Table, shape: Shape) -> tuple[list[Numbers], list[Numbers]]:
    """How far apart each floating measure of two sides lies, relative and absolute."""
    relative, absolute = list[Numbers](), list[Numbers]()
    for at, name in enumerate(shape.floating):
        (x, no_x), (y, no_y) = (numbers(rows, f"{side}{at}") for side in "bs")
        with np.errstate(all="ignore"):
            equal = (no_x & no_y) | (~no_x & ~no_y & ((x == y) | (np.isnan(x) & np.isnan(y))))
            finite = ~no_x & ~no_y & np.isfinite(x) & np.isfinite(y)
            by = np.abs(x - y)
            share = by / np.maximum(np.abs(x), np.abs(y))
            if shape.types[name] == "float":
                near = share <= rounding.FLOAT_STEP
                by, share = np.where(near, rounding.STEP * np.abs(x), by), np.where(near, rounding.STEP, share)
        for found, measured in ((relative, share), (absolute, by)):
            found.append(np.where(equal, 0.0, np.where(finite, measured, rounding.APART)))
    return relative, absolute


def digests(
    rows: pa.Table, shape: Shape, batch: Numbers, by_slot: Any, counted: Sequence[int], *, whole: bool
) -> list[str]:
    """Each slot's digest, of the batch's rows."""
    totals = dict[str, list[int]]()
    names = ["exact"] if whole or not shape.floating else list(TEXTS)
    parts = [rows.slice(at, AT_A_TIME) for at in range(0, rows.num_rows, AT_A_TIME)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets others work meanwhile
        each = list(pool.map(lambda part: row_hashes(part, shape, names), parts))
    for name, found in zip(names, zip(*each, strict=True), strict=True):
        # Summed in halves, as their sum has more than 64 bits.
        hashes = np.concatenate(found)
        high, low = (np.where(batch, half, 0) for half in (hashes >> 32, hashes & 0xFFFFFFFF))
        totals[name] = [(a << 32) + b for a, b in zip(by_slot(np.add, high), by_slot(np.add, low), strict=True)]
    told = {name: totals.get(name, totals["exact"]) for name in TEXTS}
    return [
        Digest(rows=count, **{name: str(one[at]) for name, one in told.items()}, last_end=0).text if count else NOTHING
        for at, count in enumerate(counted)
    ]


def row_hashes(rows: pa.Table, shape: Shape, names: Sequence[str]) -> list[Numbers]:
    """The hash of each row, its floating numbers written in each of these ways; up to the first one they are alike."""
    found = [np.full(rows.num_rows, texts.SEED, dtype="uint64")]
    floats = iter(range(len(shape.floating)))
    for at, kind in enumerate(shape.types.values()):
        if kind in FLOATING:
            values = numbers(rows, f"b{next(floats)}")
            found = found * len(names) if len(found) == 1 else found
            lots = floating_texts(*values, kind, names)
        else:
            lots = [list(texts.of_strings(rows.column(f"t{at}").combine_chunks()))] * len(found)
        found = [texts.hashed(seeds, iter(some)) for seeds, some in zip(found, lots, strict=True)]
    return [seeds.astype("int64") for seeds in (found * len(names))[: len(names)]]


def floating_texts(values: Numbers, null: Numbers, kind: str, names: Sequence[str]) -> list[list[texts.Lot]]:
    """The texts of floating numbers in each of these ways."""
    known = list[Digits]()
    exact = list(texts.of_numbers(values, null, significant=FLOATING[kind], known=known))
    if list(names) == ["exact"]:
        return [exact]
    told = {
        "exact": exact,
        "binary": list(texts.in_bits(values, null)),
        "decimal": list(texts.in_decimals(values, null, known=known if kind == "double" else None)),
    }
    return [told[name] for name in names]
