"""The rows of both layers by slot, compared and digested as Spark does it (rows/differences.py, rows/hashes.py).

Whatever Spark would have to choose at random is not chosen here: two rows of one window and key are left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tally.base.duration import millis
from tally.base.sql_text import quoted
from tally.catalog.ranges import Range, floor, merge, overlap
from tally.catalog.spec import Pipeline
from tally.reconcile.first_pass import unsure
from tally.reconcile.first_pass.digests import digests, numbers
from tally.reconcile.first_pass.shape import FLOATING, WINDOW, Shape, shape_of
from tally.reconcile.first_pass.tables import Snapshot
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.rows import rounding
from tally.reconcile.rows.differences import Slot

if TYPE_CHECKING:
    import duckdb

Numbers = np.ndarray[Any, np.dtype[Any]]
# Rows that are brought together at a time, and all that is worked out from them: some 500 bytes each, 500 MB. Each time
# the window starts of all are read again to find them, a hundredth of the work.
TOGETHER = 1_000_000
# Years that Spark and DuckDB write alike; so they do days.
FIRST, LAST = "0001-01-01", "9999-12-31"


def by_slot(
    connection: duckdb.DuckDBPyConnection, batch: Snapshot, stream: Snapshot, pipeline: Pipeline,
    ranges: Sequence[Range], *, until: int | None, whole: bool,
) -> dict[int, Slot]:  # fmt: skip
    """Every slot that has a row in either layer; `until` is the last `_batch` to look at, None: all.

    `whole` has each value enter every digest whole, as where nothing is summed.
    """
    shape, step, found = shape_of(batch, stream, pipeline), millis(pipeline.window.step), dict[int, Slot]()
    early = "true" if until is None else f"_batch <= {until}"
    for piece in pieces(connection, batch, ranges, step):
        joined = read(connection, batch, stream, shape, piece, early)
        found |= slots_of(joined, shape, step * 1000, whole=whole) if joined.num_rows else {}
    return found


def pieces(
    connection: duckdb.DuckDBPyConnection, batch: Snapshot, ranges: Sequence[Range], step: int
) -> Iterator[Sequence[Range]]:
    """The ranges in pieces of as many rows of the batch's as are looked at together, cut between two slots."""
    starts = f"({batch.read(connection, [WINDOW[0]], WINDOW[0], ranges)})"
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {starts}").fetchall()
    count = -(-rows // TOGETHER)
    if count < 2:
        yield ranges
        return
    shares = [number / count for number in range(1, count)]
    ((cuts,),) = connection.execute(f"SELECT quantile_disc(epoch_ms({WINDOW[0]}), {shares}) FROM {starts}").fetchall()
    wanted = merge(ranges)
    edges = sorted({wanted[0][0], *(floor(cut, step) for cut in cuts), wanted[-1][1]})
    for piece in pairwise(edges):
        yield overlap(wanted, [piece])


def read(
    connection: duckdb.DuckDBPyConnection, batch: Snapshot, stream: Snapshot, shape: Shape, ranges: Sequence[Range],
    early: str,
) -> pa.Table:  # fmt: skip
    """The rows of both sides beside each other; of the stream's, those that `early` is true of."""
    names, keys = list(shape.types), ", ".join(map(quoted, shape.keys))
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
    found = connection.sql("FROM joined").to_arrow_table().combine_chunks()
    connection.execute("DROP TABLE joined")
    return found


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
        met += connection.execute(f"SELECT 1 FROM ({lone}) GROUP BY {keys} HAVING count(*) > 1 LIMIT 1").fetchall()
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
