"""`tally reconcile`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tally.cli.output import Json, show
from tally.errors import TallyError


def reconcile(
    pipeline: Annotated[str, typer.Argument(help="Whose windows.")],
    since: Annotated[str | None, typer.Option("--from", help="Windows that start at this time or later.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Windows that start before this time.")] = None,
    json: Json = False,
) -> None:
    """Compare both layers, explain what differs, judge and seal; without a range, every closed window not sealed."""
    from tally.reconcile.report import print_report

    if (since is None) != (until is None):
        missing = "--from" if since is None else "--to"
        raise TallyError(
            "a range has two ends", pipeline=pipeline, field=missing, cure=f"give {missing} too, or neither"
        )
    found = reconciled(pipeline, since, until)
    show(found, json, lambda: print_report(found))
    if found["verdict"] != "reconciled":
        raise typer.Exit(1)


def reconciled(pipeline: str, since: str | None, until: str | None) -> dict[str, Any]:
    """Compare, judge and seal a range; the document of what came of it."""
    from tally.reconcile import docs
    from tally.reconcile.compare import compare
    from tally.reconcile.judge import judge
    from tally.reconcile.report import document
    from tally.reconcile.seal import seal

    docs.warm()
    number = compare(pipeline, since, until)
    judge(number)
    return document(seal(number))
