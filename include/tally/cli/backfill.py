"""`tally plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from tally.cli.output import Json, show


def plan(
    pipeline: Annotated[str, typer.Argument(help="The pipeline to restate and reconcile.")],
    since: Annotated[str, typer.Option("--from", help="Start of the first window, ISO 8601, UTC.")],
    until: Annotated[str, typer.Option("--to", help="Windows that start before this.")],
    chunk: Annotated[str, typer.Option(help="Windows per job.")] = "24 hours",
    json: Json = False,
) -> None:
    """Say what a backfill of a range would do, and whether the archive and Kafka still hold all it needs."""
    from tally.backfill.coverage import coverage
    from tally.backfill.plan import plan as make
    from tally.catalog.load import catalogue

    spec = catalogue().pipeline(pipeline)
    made = make(spec, since, until, coverage=coverage(spec), chunk=chunk)
    show(made.as_dict(), json, lambda: typer.echo(str(made)))
    if not made.possible:
        raise typer.Exit(1)
