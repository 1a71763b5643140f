"""Many pipelines on one topic in one driver: when each lives, how old its rows are, and what all of them cost.

In one run, each way after the other: a query each, all sharing one reading of the topic, the same functions in Flink.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench.peers.engines.live import Live, LiveFlink, LiveTally
from bench.peers.following import follow

WAYS: dict[str, Live] = {"own": LiveTally(shared=False), "shared": LiveTally(shared=True), "flink": LiveFlink()}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Each way in a home of its own; `wrong` is empty where the rows are what the sales come to."""
    return {
        "pipelines": given.pipelines,
        "rate": given.many_events,
        "seconds": given.many_seconds,
        **{way: one_way(given, WAYS[way]) for way in given.ways.split(",")},
    }


def one_way(given: argparse.Namespace, engine: Live) -> dict[str, Any]:
    numbers, wrong = follow(engine, given.pipelines, given.many_events, given.many_seconds)
    return {**numbers, "wrong": wrong}
