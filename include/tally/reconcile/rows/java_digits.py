"""The decimal digits that Java 17 writes a floating-point number with. No Spark, and the same digits.

Up to Java 18 Double.toString is no shortest text: it stops by a symmetric test, sometimes a digit late and sometimes
not at the nearest. A digest enters these very digits, so its steps are followed here, in the same widths of integers:
what overflows there overflows here. Numbers that need more than 64 bits go one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]
MOST = 18  # digits of any
FRACTION = 52  # bits behind the first one
BIAS = 1023
LAST_SMALL = 62  # integers up to here are written as they are
# How many bits 5^n takes, as Java has them in a table; past its end it reckons with three a power.
FIVES = np.array([0, *((5**n).bit_length() for n in range(1, 27))])
POWERS = np.array([5**n for n in range(27)], dtype="int64")


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Positive numbers as 0.d1d2d3... * 10^exponent; what lies behind the last digit is 0."""

    digits: Numbers  # one row a number
    count: Numbers
    exponent: Numbers


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """Numbers as b * 2^b2 * 5^b5 over 2^s2 * 5^s5, with half the distance to the next one as 2^m2 * 5^b5."""

    fraction: Numbers
    exponent: Numbers  # an estimate, at most one too high
    b2: Numbers
    b5: Numbers
    s2: Numbers
    s5: Numbers
    m2: Numbers

    def at(self, mine: Numbers) -> Scaled:
        return Scaled(**{name: column[mine] for name, column in vars(self).items()})


def digits_of(values: Numbers, *, significant: int = FRACTION + 1, short: bool = True) -> Digits:
    """The digits of positive, finite numbers; `significant` is how many bits their type has.

    `short` allows a single digit, as Double.toString does for what it writes without an exponent.
    """
    size = len(values)
    found = Digits(
        digits=np.zeros((size, MOST), dtype="uint8"),
        count=np.zeros(size, dtype="int64"),
        exponent=np.zeros(size, dtype="int64"),
    )
    fraction, power, bits = parts(values, significant)
    zeros = trailing_zeros(fraction)
    used = FRACTION + 1 - zeros
    tiny = np.maximum(0, used - power - 1)
    whole = (tiny == 0) & (power <= LAST_SMALL)
    write_whole(found, np.flatnonzero(whole), fraction, power, bits)
    hard = np.flatnonzero(~whole)
    scaled = scale(fraction[hard], power[hard], bits[hard], zeros[hard])
    wide = used[hard] + scaled.b2 + of_fives(scaled.b5)
    tens = scaled.s2 + 1 + of_fives(scaled.s5 + 1)
    ints, longs = (wide < 32) & (tens < 32), (wide < 64) & (tens < 64)
    for mine, kind in ((ints, "int32"), (longs & ~ints, "int64")):
        write_narrow(found, hard[mine], scaled.at(mine), kind, short=short)
    for at in np.flatnonzero(~longs):
        write_wide(found, int(hard[at]), scaled.at(np.array([at])), short=short)
    return found


def lengthened(found: Digits, values: Numbers) -> Digits:
    """The digits of these numbers as they are where no single digit is allowed, by those where it is."""
    alone = np.flatnonzero(found.count == 1)
    longer, told = digits_of(values[alone], short=False), {}
    for name, column in vars(found).items():
        told[name] = column.copy()
        told[name][alone] = getattr(longer, name)
    return Digits(**told)


def parts(values: Numbers, significant: int) -> tuple[Numbers, Numbers, Numbers]:
    """The fraction with its first bit at bit 52, the power of two of that bit, and how many bits are significant."""
    mantissa, power = np.frexp(values)  # of subnormal numbers, too
    fraction = np.ldexp(mantissa, FRACTION + 1).astype("int64")
    power = power.astype("int64") - 1
    least = -1022 if significant == FRACTION + 1 else -126
    return fraction, power, significant - np.maximum(0, least - power)


def trailing_zeros(fraction: Numbers) -> Numbers:
    lowest = (fraction & -fraction).astype("float64")  # a power of two, so exact
    power: Numbers = np.frexp(lowest)[1].astype("int64") - 1
    return power


def of_fives(powers: Numbers) -> Numbers:
    return np.where(powers < len(FIVES), FIVES[np.minimum(powers, len(FIVES) - 1)], powers * 3)


def write_whole(found: Digits, mine: Numbers, fraction: Numbers, power: Numbers, bits: Numbers) -> None:
    """Whole numbers: all digits, but for those at the end that no bit tells of."""
    power, bits, value = power[mine], bits[mine], fraction[mine]
    value = np.where(
        power >= FRACTION, value << np.maximum(power - FRACTION, 0), value >> np.maximum(FRACTION - power, 0)
    )
    left_out = np.where(power > bits, np.floor(np.maximum(power - bits - 1, 0) * np.log10(2.0)), 0).astype("int64")
    unit = 10**left_out
    rest = value % unit
    value = value // unit + ((left_out > 0) & (rest >= unit >> 1))
    exponent = left_out
    for _ in range(MOST + 1):
        ends = value % 10 == 0
        value, exponent = np.where(ends, value // 10, value), exponent + ends
    count = np.zeros(len(value), dtype="int64")
    for at in range(MOST + 1):
        count += value >= 10**at
    for at in range(MOST):
        place = count - 1 - at
        digit = np.where(place >= 0, value // 10 ** np.maximum(place, 0) % 10, 0)
        found.digits[mine, at] = digit
    found.count[mine], found.exponent[mine] = count, exponent + count


def scale(fraction: Numbers, power: Numbers, bits: Numbers, zeros: Numbers) -> Scaled:
    used = FRACTION + 1 - zeros
    tiny = np.maximum(0, used - power - 1)
    lead = (fraction & ((1 << FRACTION) - 1)).astype("float64") / 2.0**FRACTION + 1.0
    estimate = (lead - 1.5) * 0.289529654 + 0.176091259 + power.astype("float64") * 0.301029995663981
    exponent = np.floor(estimate).astype("int64")
    b5, s5 = np.maximum(0, -exponent), np.maximum(0, exponent)
    b2, s2 = b5 + tiny + power, s5 + tiny
    m2 = b2 - bits
    b2 = b2 - (used - 1)
    common = np.minimum(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    m2 = np.where(used == 1, m2 - 1, m2)  # below a power of two the next number is nearer
    more = np.minimum(m2, 0)
    return Scaled(fraction=fraction >> zeros, exponent=exponent, b2=b2 - more, b5=b5, s2=s2 - more, s5=s5, m2=m2 - more)


def write_narrow(found: Digits, mine: Numbers, of: Scaled, kind: str, *, short: bool) -> None:
    """Numbers whose parts fit in 32 or 64 bits, a digit of all of them at a time."""
    b = (of.fraction.astype(kind) * POWERS[of.b5].astype(kind)) << of.b2.astype(kind)
    s = POWERS[of.s5].astype(kind) << of.s2.astype(kind)
    m = POWERS[of.b5].astype(kind) << of.m2.astype(kind)
    ten = np.array(10, dtype=kind)
    tens = s * ten
    q, b, m = b // s, ten * (b % s), m * ten
    low, high = b < m, b + m > tens
    skip = (q == 0) & ~high
    exponent = of.exponent - skip
    digits, count = np.zeros((len(mine), MOST), dtype="int64"), np.where(skip, 0, 1)
    digits[:, 0] = q
    again = (exponent < -3) | (exponent >= 8) | (not short)
    low, high = low & ~again, high & ~again
    going = np.flatnonzero(~low & ~high)
    while len(going):
        q, rest = np.divmod(b[going], s[going])
        b[going], m[going] = ten * rest, m[going] * ten
        whole = m[going] > 0  # else it has overflowed, as it does in Java
        low[going] = ~whole | (b[going] < m[going])
        high[going] = ~whole | (b[going] + m[going] > tens[going])
        digits[going, count[going]] = q
        count[going] += 1
        going = going[~low[going] & ~high[going]]
    twice = (b << np.array(1, dtype=kind)) - tens
    odd = digits[np.arange(len(mine)), count - 1] % 2 == 1
    up = high & (~low | (twice > 0) | ((twice == 0) & odd))
    finish(found, mine, digits, count, exponent + 1, up)


def write_wide(found: Digits, mine: int, of: Scaled, *, short: bool) -> None:
    """One number whose parts are larger."""
    fraction, exponent, b2, b5, s2, s5, m2 = (int(column[0]) for column in vars(of).values())
    b, s, m = fraction * 5**b5 << b2, 5**s5 << s2, 10 * 5**b5 << m2
    tens = 10 * s
    q, b = b // s, 10 * (b % s)
    low, high = b < m, b + m >= tens
    digits = [q]
    if q == 0 and not high:
        digits, exponent = [], exponent - 1
    if not short or exponent < -3 or exponent >= 8:
        low = high = False
    while not low and not high:
        q, b, m = b // s, 10 * (b % s), m * 10
        low, high = b < m, b + m >= tens
        digits.append(q)
    twice = 2 * b - tens
    up = high and (not low or twice > 0 or (twice == 0 and digits[-1] % 2 == 1))
    row = np.array([digits + [0] * (MOST - len(digits))])
    finish(found, np.array([mine]), row, np.array([len(digits)]), np.array([exponent + 1]), np.array([up]))


def finish(found: Digits, mine: Numbers, digits: Numbers, count: Numbers, exponent: Numbers, up: Numbers) -> None:
    """Add one to the last digit where it is to be rounded up; nines carry, and stay as zeros."""
    left, at = np.flatnonzero(up), count - 1
    while len(left):
        nines = digits[left, at[left]] == 9
        digits[left[~nines], at[left[~nines]]] += 1
        left = left[nines]
        digits[left, at[left]] = 0
        first = left[at[left] == 0]
        digits[first, 0], exponent[first] = 1, exponent[first] + 1
        left = left[at[left] > 0]
        at[left] -= 1
    found.digits[mine], found.count[mine], found.exponent[mine] = digits, count, exponent
