"""`tally doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from tally.cli.output import Json, say, show


def doctor(pipeline: Annotated[str, typer.Argument(help="Whose stream.")], json: Json = False) -> None:
    """Look at all that one stream needs, a line a check, and say what to do first; exit code 1 if something is bad."""
    from tally.supervise.doctor import examine, first

    found = examine(pipeline)
    ok, todo = all(finding.good for finding in found), first(found)

    def lines() -> None:
        for finding in found:
            say(f"{'ok ' if finding.good else 'BAD'}  {finding.name}: {finding.seen}")
            if finding.cure:
                say(f"     cure: {finding.cure}")
        say(f"first: {todo}" if todo else "all is well: nothing to do")

    checks = [
        {"check": finding.name, "ok": finding.good, "seen": finding.seen, "cure": finding.cure or None}
        for finding in found
    ]
    show({"pipeline": pipeline, "ok": ok, "checks": checks, "first": todo or None}, json, lines)
    if not ok:
        raise typer.Exit(1)
