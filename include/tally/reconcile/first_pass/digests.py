"""The digests of slots as Spark works them out (rows/hashes.py): the texts of values, and hashes of rows. No Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from tally.reconcile.first_pass.shape import FLOATING, Shape
from tally.reconcile.rows import texts
from tally.reconcile.rows.digest import NOTHING, Digest
from tally.reconcile.rows.hashes import TEXTS
from tally.reconcile.rows.java_digits import Digits

Numbers = np.ndarray[Any, np.dtype[Any]]
# Rows of which a thread makes the texts and hashes at a time.
AT_A_TIME = 250_000


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


def numbers(rows: pa.Table, name: str) -> tuple[Numbers, Numbers]:
    """A column of numbers, and where it has none."""
    column = rows.column(name)
    null = column.is_null().to_numpy().astype(bool)
    return column.fill_null(0.0).to_numpy().astype("float64"), null
