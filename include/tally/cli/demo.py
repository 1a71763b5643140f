"""`tally demo`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tally.cli.output import Json, note, say, show


def demo(
    rate: Annotated[float, typer.Option(help="Rides per second.")] = 50.0,
    past: Annotated[str, typer.Option(help="How far back the first demo of a home begins.")] = "2 hours",
    lasting: Annotated[str | None, typer.Option("--for", help="Stop by itself after so long.")] = None,
    json: Json = False,
) -> None:
    """Show everything at work: Kafka, Airflow and a stream of taxi rides, on one live screen; Ctrl-C stops it all."""
    from tally.catalog.duration import parse_duration
    from tally.demo.produce import Order
    from tally.demo.run import Demo, Show

    Order(rate=rate, past=parse_duration(past, field="--past")).check()  # before anything is started for it
    seconds = None if lasting is None else parse_duration(lasting, field="--for").total_seconds()
    terminal = sys.stdout.isatty() and not json
    speak = note if json else say
    seen = Demo(Show(rate=rate, past=past, seconds=seconds), speak, live=terminal).run()
    show(seen, json, lambda: None)
