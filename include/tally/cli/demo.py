"""`tally demo`, and `tally produce`, which sends what the demo shows."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from tally.cli.output import Json, note, say, show


def demo(
    rate: Annotated[float, typer.Option(help="Rides per second.")] = 50.0,
    past: Annotated[str, typer.Option(help="How far back the first demo of a home begins.")] = "2 hours",
    lasting: Annotated[str | None, typer.Option("--for", help="Stop by itself after so long.")] = None,
    json: Json = False,
) -> None:
    """Show everything at work: Kafka, Airflow and a stream of taxi rides, on one live screen; Ctrl-C stops it all."""
    from tally.base.duration import parse_duration
    from tally.demo.produce import Order
    from tally.demo.run import Demo, Show

    Order(rate=rate, past=parse_duration(past, field="--past")).check()  # before anything is started for it
    seconds = None if lasting is None else parse_duration(lasting, field="--for").total_seconds()
    terminal = sys.stdout.isatty() and not json
    speak = note if json else say
    seen = Demo(Show(rate=rate, past=past, seconds=seconds), speak, live=terminal).run()
    show(seen, json, lambda: None)


def produce(
    what: Annotated[str, typer.Argument(help="rides; their payments come along")] = "rides",
    rate: Annotated[float, typer.Option(help="Rides per second of event time; of a CSV, lines per second.")] = 100.0,
    seed: Annotated[int, typer.Option(help="Same seed, start, rate: same events.")] = 1,
    past: Annotated[
        str | None, typer.Option(help='Begin so long ago, e.g. "2 hours", or where this home\'s last producer stopped.')
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Begin at this time (UTC); of a CSV, move its first pickup to it.")
    ] = None,
    lasting: Annotated[str | None, typer.Option("--for", help="Stop so long from now; 0s: only the past.")] = None,
    count: Annotated[
        int | None, typer.Option(help="So many rides; alone, as fast as possible, with the last of them now.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Replay this file, in the TLC's yellow-taxi columns.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first unusable line of the CSV.")] = False,
    payments: Annotated[bool, typer.Option("--payments/--no-payments", help="Pay for the rides.")] = True,
    late: Annotated[float, typer.Option(help="Share of records 11 to 60 minutes late.")] = 0.01,
    duplicates: Annotated[float, typer.Option(help="Share of records sent twice.")] = 0.005,
    bad: Annotated[float, typer.Option(help="Share of records that no reader may accept.")] = 0.002,
    stray: Annotated[str, typer.Option(help="How far event times stray from the time of sending.")] = "30 seconds",
    json: Json = False,
) -> None:
    """Produce taxi rides with disorder, late, repeated and bad ones, and write down the truth of each."""
    from tally.base.duration import millis, parse_duration, parse_instant
    from tally.base.errors import TallyError
    from tally.base.safe_text import quoted
    from tally.demo.events import Disorder
    from tally.demo.produce import Order
    from tally.demo.produce import produce as carry_out

    if what != "rides":
        raise TallyError(f"there is no generator for {quoted(what)}", cure="tally produce rides")

    def span(text: str | None, name: str) -> timedelta | None:
        return None if text is None else parse_duration(text, field=name)

    order = Order(
        rate=rate,
        seed=seed,
        past=span(past, "--past"),
        start=None if start is None else parse_instant(start, field="--start"),
        lasting=span(lasting, "--for"),
        count=count,
        csv=csv,
        strict=strict,
        payments=payments,
        disorder=Disorder(
            late=late, duplicates=duplicates, bad=bad, stray_ms=millis(parse_duration(stray, field="--stray"))
        ),
    )
    report = carry_out(order, note)
    show(report, json, lambda: print_sent(report))


def print_sent(report: dict[str, Any]) -> None:
    say(f"{report['records']:,} records in {report['seconds']:.1f} s, {report['rate']:,.0f} a second")
    for topic, kinds in report["sent"].items():
        if kinds:
            say(f"  {topic}: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()))
    if report.get("unusable"):
        note(f"{report['unusable']:,} unusable lines left out, the first of them:")
        for line in report["unusable_lines"]:
            note(f"  {line}")
