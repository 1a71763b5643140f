"""A month of hours, a late event in every other one, restated and reconciled by one command in a heap of 1 GiB."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import Any

from bench.home import tally, timed
from bench.scattered import KEYS, MINUTE, T0, catalogue, iso, send

HOUR = 60 * MINUTE
HOURS = 31 * 24
EVENTS = 400  # an hour


def measure(_: argparse.Namespace) -> dict[str, Any]:
    """What the backfill found against what was sent, and what it cost."""
    late = [(T0 + hour * HOUR + 2_000, hour % KEYS, 0.25) for hour in range(0, HOURS, 2)]
    with catalogue('tumbling("1 hour")') as (_, bootstrap):
        events = list(on_time())
        send(bootstrap, [*events, (T0 + (HOURS + 2) * HOUR, 0, 1.0)])
        tally("stream", "--until-caught-up")
        send(bootstrap, late)
        tally("stream", "--until-caught-up")
        span = ("--from", iso(T0 // HOUR * HOUR), "--to", iso(T0 // HOUR * HOUR + HOURS * HOUR))
        found, cost = timed("backfill", "sums", *span, "--chunk", "31 days")
        (chunk,) = found["chunks"]
        rows = tally("read", "sums", *span, "--format", "json")
    truth = sums([*events, *late])
    served = {(row["window_start"], row["shop"]): (row["n"], row["total"]) for row in rows if row["state"] == "sealed"}
    return {
        "hours": HOURS,
        "events": len(events) + len(late),
        "late": {"sent": len(late), "found": chunk["events"].get("late", 0)},
        "different": chunk["different"],
        "unexplained": chunk["unexplained"],
        "sealed_rows": len(served),
        "sealed_rows_wrong": sum(truth.get(place) != row for place, row in served.items()),
        "verdict": found["verdict"],
        "backfill": cost,
    }


def on_time() -> Iterator[tuple[int, int, float]]:
    chance = random.Random(HOURS)
    for hour in range(HOURS):
        for at in range(EVENTS):
            yield T0 + hour * HOUR + at * 8_000, chance.randrange(KEYS), chance.randrange(400) / 4


def sums(events: list[tuple[int, int, float]]) -> dict[tuple[str, int], tuple[int, float]]:
    """Count and sum of each hour and shop; quarters add up exactly."""
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for time, shop, amount in events:
        place = iso(time // HOUR * HOUR), shop
        n, total = found.get(place, (0, 0.0))
        found[place] = n + 1, total + amount
    return found
