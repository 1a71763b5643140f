"""Hashes of unique ids: equal ids have equal ones, in each process; sets of them are sorted arrays. No Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tally.sources.records.plain import duck

Hashes = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
BIGINT = 2**63


def hashes(ids: pa.ChunkedArray) -> Hashes:
    """One of 64 bits for each id: a whole number, a DECIMAL, text or bytes."""
    if pa.types.is_integer(ids.type):
        return mixed(ids.cast(pa.int64()).to_numpy())
    if pa.types.is_decimal(ids.type):
        return mixed(np.array([short_of(one) for one in ids.to_pylist()], np.int64))
    connection = duck()
    connection.register("ids", pa.table({"id": ids}))
    found = connection.sql("SELECT hash(id) AS hash FROM ids").to_arrow_table()["hash"].to_numpy()
    connection.unregister("ids")
    return np.asarray(found)


def short_of(one: Decimal) -> int:
    """A BIGINT for a number, whatever its scale: itself where it is one."""
    return int(one) if -BIGINT <= one < BIGINT and one == int(one) else hash(one)


def mixed(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> Hashes:
    """Each bit of a number in each of its hash (splitmix64)."""
    found = numbers.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found ^= found >> np.uint64(shift)
        found *= np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def short(found: Hashes) -> Hashes:
    """The first half of each: of two million, one in a thousand is another one's. Sorted ones stay sorted."""
    return (found >> np.uint64(32)).astype(np.uint32)


def among(ordered: Hashes, found: Hashes) -> Mask:
    """Which of these are in a sorted array; it is quick where they are sorted, too."""
    if not len(ordered):
        return np.zeros(len(found), np.bool_)
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, found), len(ordered) - 1)] == found)


def together(some: list[Hashes]) -> Hashes:
    """Sorted arrays as one: where they are few and long it takes little more than to read them."""
    return np.sort(np.concatenate(some), kind="stable")
