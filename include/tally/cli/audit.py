"""`tally audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from tally.cli.output import Json, note, say, show
from tally.errors import TallyError


def audit(
    pipeline: Annotated[str | None, typer.Argument(help="Whose windows; none named: every pipeline's.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Windows that start at this time or later.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Windows that start before this time.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="State all of them again from the archive, not a part.")] = False,
    json: Json = False,
) -> None:
    """Go over sealed windows again: the table against each seal, each seal against the archive; hold what fails."""
    from tally.catalog.load import catalogue
    from tally.reconcile.audit import audit as go_over

    if (since is None) != (until is None):
        missing = "--from" if since is None else "--to"
        raise TallyError(
            "a range has two ends", pipeline=pipeline, field=missing, cure=f"give {missing} too, or neither"
        )
    known = catalogue()
    names = sorted(known.pipelines) if pipeline is None else [known.pipeline(pipeline).name]
    for name, fault in known.broken.items() if pipeline is None else ():
        note(f"{name}: left out: {str(fault).splitlines()[0]}")
    found = [go_over(name, since, until, deep=deep) for name in names]
    show([one.as_dict() for one in found], json, lambda: say("\n".join(map(str, found))))
    if not all(one.passed for one in found):
        raise typer.Exit(1)
