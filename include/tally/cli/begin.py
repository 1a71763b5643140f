"""`tally begin`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tally.cli.output import Json, say, show


def begin(
    pipeline: Annotated[str, typer.Argument(help="Whose numbers.")],
    at: Annotated[str | None, typer.Option("--at", help="Windows that start at this time or later are whole.")] = None,
    why: Annotated[str, typer.Option("--why", help="Kept with it, and shown among the incidents.")] = "",
    json: Json = False,
) -> None:
    """Show where a pipeline's numbers begin, and what retention had eaten before; with --at, say where they begin."""
    from tally.catalog.load import catalogue
    from tally.errors import TallyError
    from tally.reconcile import begin as beginning

    spec = catalogue().pipeline(pipeline)
    if why and at is None:
        raise TallyError("it says why of nothing", pipeline=pipeline, field="--why", cure="give --at too")
    found = beginning.document(spec) if at is None else beginning.begin(spec, at, why)
    show(found, json, lambda: say("\n".join(lines(found, new=at is not None))))


def lines(found: dict[str, Any], *, new: bool) -> Iterator[str]:
    """The beginning as a person reads it, and what to do next."""
    name, said = found["pipeline"], found["said"]
    if found["begins"] is None:
        yield f"{name}: nothing is known to be missing: its topics are read from offset 0, or not archived yet"
        return
    yield f"{name}: its numbers begin at {found['begins']}; windows that start before are partial"
    if said:
        yield f"  said by {said['by']} at {said['when']}" + (f": {said['why']}" if said["why"] else "")
    for one in found["missed"]:
        sure = "" if one["proven"] else " if the declared lateness holds"
        yield f"  gone before the archive began: {place(one)}; their events are before {one['events_before']}{sure}"
    for one in found["may_lack"]:
        yield f"  windows that count as whole may lack: {place(one)}"
    if new:
        yield f"next: tally reconcile {name}"
    elif found["partial"]:
        yield f"next: {found['partial']:,} slots are partial; tally begin {name} --at T, if they are whole from T on"


def place(one: dict[str, Any]) -> str:
    first, end = one["offsets"]
    return f"topic {one['topic']}, partition {one['partition']}, offsets [{first:,}, {end:,})"
