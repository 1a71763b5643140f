"""A made-up city: 265 zones, 400 cabs that work in shifts, and what a ride in it costs, all fixed by a seed.

Everything dear is worked out once and kept as ready JSON text, so that a ride costs a few list look-ups.
"""

from __future__ import annotations

import random
from typing import NamedTuple

CABS = 400
ZONES = 265
AIRPORTS = {132: 7000, 138: 4500, 1: 8500}  # zone -> flat fare, cents
# The busiest zones of the real city, so that the demo's heads look familiar; all others follow by number.
BUSY = (237, 161, 236, 132, 162, 186, 142, 230, 138, 170, 234, 239, 163, 48, 141, 68, 79, 107, 164, 249)
PAYMENT_TYPES = {"card": 0.70, "cash": 0.19, "app": 0.09, "dispute": 0.02}
# Rides and payments are drawn from this many ready-made ones: 0.3 s of start-up buys 100,000 rides a second.
SHAPES = 16_384
UNPAID = 0.03
SLOW_PAYER = 0.03
# A pause is longer than the 30 minutes that end a shift, with room for the disorder on both of its sides.
SHORTEST_PAUSE_MINUTES = 40
MINUTE = 60_000
CENTS = [f"{cents // 100}.{cents % 100:02d}" for cents in range(60_000)]


class Shape(NamedTuple):
    """What a ride is apart from its id, cab and time; `text` is the tail of its JSON."""

    lasts_ms: int
    zone: int
    total: str
    text: str


class Paying(NamedTuple):
    """How and how long after pickup a ride is paid; None: never."""

    type: str
    after_ms: int | None


class Cab(NamedTuple):
    """A cab of one vendor; on shift for `on` minutes out of every `period`."""

    id: int
    vendor: int
    period: int
    on: int
    phase: int
    text: str

    def works(self, minute: int) -> bool:
        """Whether it is on shift in this minute since the epoch."""
        return (minute + self.phase) % self.period < self.on


class City:
    """The city of one seed: the same seed gives the same city in every process."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"city/{seed}")
        self.shapes = _shapes(rng)
        self.payings = [_paying(rng) for _ in range(SHAPES)]
        self.cabs = [_cab(number, rng) for number in range(1, CABS + 1)]
        self._on: dict[int, list[Cab]] = {}

    def cabs_on(self, minute: int) -> list[Cab]:
        """The cabs on shift in a minute since the epoch; never empty."""
        cabs = self._on.get(minute)
        if cabs is None:
            if len(self._on) > 1000:
                self._on.clear()
            cabs = self._on[minute] = [cab for cab in self.cabs if cab.works(minute)] or self.cabs[:1]
        return cabs


def _cab(number: int, rng: random.Random) -> Cab:
    on = rng.randint(20, 60)
    period = on + rng.randint(SHORTEST_PAUSE_MINUTES, 75)
    vendor = 1 if rng.random() < 0.35 else 2
    return Cab(number, vendor, period, on, rng.randrange(period), f'"cab_id":{number},"vendor_id":{vendor},')


def _shapes(rng: random.Random) -> list[Shape]:
    zones = list(BUSY) + [zone for zone in range(1, ZONES + 1) if zone not in BUSY]
    weights = [1 / (rank + 4) ** 1.1 for rank in range(ZONES)]
    starts = rng.choices(zones, weights, k=SHAPES)
    ends = rng.choices(zones, [weight**0.8 for weight in weights], k=SHAPES)
    return [_shape(start, end, rng) for start, end in zip(starts, ends, strict=True)]


def _shape(start: int, end: int, rng: random.Random) -> Shape:
    miles = min(int(rng.lognormvariate(0.55, 0.75) * 100) + 20, 4500)  # hundredths
    minutes = max(2.0, miles / 100 / rng.uniform(0.12, 0.30))
    fare = AIRPORTS.get(start) or 300 + miles * 7 // 4 + int(minutes * 50)
    tip = int(fare * rng.uniform(0.12, 0.28)) if rng.random() < 0.72 else 0
    fees = rng.choices((150, 400, 475, 1094), (0.25, 0.45, 0.25, 0.05))[0]
    passengers = rng.choices((1, 2, 3, 4, 5, 6), (0.74, 0.14, 0.04, 0.03, 0.03, 0.02))[0]
    total = CENTS[fare + tip + fees]
    text = (
        f'"pickup_zone":{start},"dropoff_zone":{end},"passengers":{passengers},"distance":{CENTS[miles]},'
        f'"fare":{CENTS[fare]},"tip":{CENTS[tip]},"total_amount":{total}}}'
    )
    return Shape(int(minutes * MINUTE), start, total, text)


def _paying(rng: random.Random) -> Paying:
    kind = rng.choices(list(PAYMENT_TYPES), list(PAYMENT_TYPES.values()))[0]
    if rng.random() < UNPAID:
        return Paying(kind, None)
    slow = rng.random() < SLOW_PAYER
    return Paying(kind, rng.randint(31 * MINUTE, 60 * MINUTE) if slow else rng.randint(MINUTE, 25 * MINUTE))
