"""The texts that values enter a digest with, as Spark on Java 17 writes them, and their hash. No Spark.

Texts of one length lie in one table of bytes: what is done to a text is done to thousands at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tally.reconcile.rows.java_digits import FRACTION, Digits, digits_of, lengthened

Numbers = np.ndarray[Any, np.dtype[Any]]
# The places of some rows, and the bytes of their texts, a row each.
Lot = tuple[Numbers, Numbers]

SEED = 42  # Spark's own
P1, P2, P3, P4, P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
GIVEN, NONE = b"=", b"null"  # before a value, and in the place of one
SPLIT = 2.0**20 + 1  # keeps the upper 33 bits of 53
LARGE = 1e300


def hashed(seeds: Numbers, lots: Iterator[Lot]) -> Numbers:
    """The hash of each row's text, begun with the row's seed: that of its columns up to here."""
    found = seeds.copy()
    for mine, text in lots:
        found[mine] = xxhash64(text, seeds[mine])
    return found


def xxhash64(text: Numbers, seed: Numbers) -> Numbers:
    """XXH64 of byte strings of one length, each with a seed of its own."""
    with np.errstate(over="ignore"):
        size, at = text.shape[1], 0
        found: Numbers
        if size >= 32:
            lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
            while at + 32 <= size:
                for number in range(4):
                    lanes[number] = mixed(lanes[number], words(text, at + 8 * number, 8))
                at += 32
            found = np.sum([turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)], axis=0)
            for lane in lanes:
                found = (found ^ mixed(np.zeros_like(lane), lane)) * P1 + P4
        else:
            found = seed + P5
        found = found + np.uint64(size)
        while at + 8 <= size:
            found = turned(found ^ mixed(np.zeros_like(found), words(text, at, 8)), 27) * P1 + P4
            at += 8
        if at + 4 <= size:
            found = turned(found ^ words(text, at, 4) * P1, 23) * P2 + P3
            at += 4
        for place in range(at, size):
            found = turned(found ^ text[:, place].astype("uint64") * P5, 11) * P1
        for shift, prime in ((33, P2), (29, P3)):
            found = (found ^ found >> np.uint64(shift)) * prime
        return found ^ found >> np.uint64(32)


def mixed(lane: Numbers, word: Numbers) -> Numbers:
    return turned(lane + word * P2, 31) * P1


def turned(word: Numbers, by: int) -> Numbers:
    return word << np.uint64(by) | word >> np.uint64(64 - by)


def words(text: Numbers, at: int, size: int) -> Numbers:
    kind = "<u8" if size == 8 else "<u4"
    return np.ascontiguousarray(text[:, at : at + size]).view(kind)[:, 0].astype("uint64")


def constant(mine: Numbers, text: bytes) -> Lot:
    return mine, np.broadcast_to(np.frombuffer(text, dtype="uint8"), (len(mine), len(text)))


def of_strings(column: pa.Array) -> Iterator[Lot]:
    """Texts as they are, bytes for bytes, each behind the sign that there is one."""
    column = column.cast(pa.large_string()) if pa.types.is_string(column.type) else column
    null = column.is_null().to_numpy(zero_copy_only=False)
    if null.any():
        yield constant(np.flatnonzero(null), NONE)
    _, bounds, data = column.buffers()
    ends = np.frombuffer(bounds, dtype="int64")[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, dtype="uint8") if data is not None else np.zeros(0, dtype="uint8")
    sizes = np.where(null, -1, np.diff(ends))
    for size in np.unique(sizes[sizes >= 0]):
        mine = np.flatnonzero(sizes == size)
        taken = text[ends[mine][:, None] + np.arange(size)]
        yield mine, np.hstack([constant(mine, GIVEN)[1], taken])


def of_numbers(
    values: Numbers, null: Numbers, *, significant: int = FRACTION + 1, known: list[Digits] | None = None
) -> Iterator[Lot]:
    """Floating numbers as Double.toString or, of fewer bits, Float.toString writes them; their digits go to `known`."""
    yield from led(values, null, lambda some: as_written(some, significant, known))


def in_decimals(values: Numbers, null: Numbers, *, known: list[Digits] | None = None) -> Iterator[Lot]:
    """Floating numbers as Java's %.9e writes them; `known` has the digits that Double.toString writes."""
    told = iter(known or [])
    yield from led(values + 0.0, null, lambda some: with_ten_digits(some, next(told, None)))


def in_bits(values: Numbers, null: Numbers) -> Iterator[Lot]:
    """The upper 33 bits of floating numbers, as Double.toString writes those."""
    value = values + 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        large = value * SPLIT
        cut = np.where(np.abs(value) < LARGE, large - (large - value), value)
    yield from led(cut, null, lambda some: as_written(some, FRACTION + 1))


def led(values: Numbers, null: Numbers, write: Any) -> Iterator[Lot]:
    """The texts of all values: what is null, what is no number, and what `write` makes of the sizes of the others."""
    words = [(null, NONE), (~null & np.isnan(values), GIVEN + b"NaN")]
    words += [(~null & (values == np.inf), GIVEN + b"Infinity"), (~null & (values == -np.inf), GIVEN + b"-Infinity")]
    for which, word in words:
        if which.any():
            yield constant(np.flatnonzero(which), word)
    finite = np.flatnonzero(~null & np.isfinite(values))
    minus = np.signbit(values[finite])
    for which, word in ((~minus, GIVEN), (minus, GIVEN + b"-")):
        mine = finite[which]
        for some, text in write(np.abs(values[mine])):
            yield mine[some], np.hstack([constant(some, word)[1], text])


def as_written(values: Numbers, significant: int, known: list[Digits] | None = None) -> Iterator[Lot]:
    """Sizes with their point, or with an exponent where they are small or large."""
    zero = np.flatnonzero(values == 0)
    if len(zero):
        yield constant(zero, b"0.0")
    rest = np.flatnonzero(values > 0)
    found = digits_of(values[rest], significant=significant)
    if known is not None:
        known.append(found)
    for mine, count, exponent in alike(found):
        digits = found.digits[mine, :count] + np.uint8(ord("0"))
        yield rest[mine], np.hstack(list(pointed(mine, digits, count, exponent)))


def alike(found: Digits) -> Iterator[tuple[Numbers, int, int]]:
    """Numbers of as many digits and the same exponent."""
    both = found.exponent * 64 + found.count
    for one in np.unique(both):
        mine = np.flatnonzero(both == one)
        yield mine, int(found.count[mine[0]]), int(found.exponent[mine[0]])


def pointed(mine: Numbers, digits: Numbers, count: int, exponent: int) -> Iterator[Numbers]:
    if 0 < exponent < 8:
        yield digits[:, :exponent]
        yield constant(mine, b"0" * (exponent - count) + b".")[1]
        yield digits[:, exponent:] if count > exponent else constant(mine, b"0")[1]
    elif -3 < exponent <= 0:
        yield constant(mine, b"0." + b"0" * -exponent)[1]
        yield digits
    else:
        yield digits[:, :1]
        yield constant(mine, b".")[1]
        yield digits[:, 1:] if count > 1 else constant(mine, b"0")[1]
        yield constant(mine, f"E{exponent - 1}".encode())[1]


def with_ten_digits(values: Numbers, known: Digits | None = None) -> Iterator[Lot]:
    """Sizes with ten digits, the last one rounded by the next of those that Java writes: half of it goes up."""
    zero = np.flatnonzero(values == 0)
    if len(zero):
        yield constant(zero, b"0.000000000e+00")
    rest = np.flatnonzero(values > 0)
    found = digits_of(values[rest], short=False) if known is None else lengthened(known, values[rest])
    number = found.digits[:, :10].astype("int64") @ 10 ** np.arange(9, -1, -1) + (found.digits[:, 10] >= 5)
    over = number == 10**10
    number, exponent = np.where(over, 10**9, number), found.exponent + over - 1
    digits = (number[:, None] // 10 ** np.arange(9, -1, -1) % 10).astype("uint8") + np.uint8(ord("0"))
    for power in np.unique(exponent):
        mine = np.flatnonzero(exponent == power)
        point, end = constant(mine, b".")[1], constant(mine, f"e{power:+03d}".encode())[1]
        yield rest[mine], np.hstack([digits[mine, :1], point, digits[mine, 1:], end])
