"""`tally batch`."""

from __future__ import annotations

from typing import Annotated

import typer

from tally.cli.output import Json, say, show


def batch(
    pipeline: Annotated[str, typer.Argument(help="The pipeline to restate.")],
    since: Annotated[str, typer.Option("--from", help="Start of the first window, ISO 8601, UTC.")],
    until: Annotated[str, typer.Option("--to", help="Windows that start before this.")],
    only: Annotated[bool, typer.Option("--only", help="Just this range, not older windows with late events.")] = False,
    json: Json = False,
) -> None:
    """Archive what is new in Kafka, then restate the range, and older windows that late events touched."""
    from tally.batch.report import batch as run

    report = run(pipeline, since, until, only=only)
    show(report.as_dict(), json, lambda: say(str(report)))
