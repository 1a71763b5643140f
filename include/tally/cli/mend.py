"""`tally mend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tally.cli.output import Json, say, show

if TYPE_CHECKING:
    from tally.sources.mend import Mended


def mend(topic: Annotated[str, typer.Argument(help="Whose archive and quarantine.")], json: Json = False) -> None:
    """Hold a topic's archive against its manifests; what differs is read from Kafka again, while that holds it."""
    from tally.catalog.load import catalogue
    from tally.engine import session
    from tally.sources.mend import mend as run

    wanted = catalogue().topic(topic)
    done = run(session(f"tally-mend-{topic}"), wanted)
    show(done.as_dict(), json, lambda: print_mended(done))
    if done.gone:
        raise typer.Exit(1)


def print_mended(done: Mended) -> None:
    """What was found, and what became of it."""
    if not done.found:
        say(f"{done.topic}: archive and quarantine are as they were written")
    for one in done.found:
        say(f"{done.topic}: {one}")
    for partition, ranges in sorted(done.read.items()):
        for start, end in ranges:
            say(f"{done.topic}: read again: partition {partition}, offsets [{start:,}, {end:,})")
    for gone in done.gone:
        say(f"{done.topic}: Kafka does not hold it any more: {gone}; docs/runbook.md, The archive differs")
