"""`tally reconcile`, `audit` and `begin`: the proof of the numbers, and where they begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tally.base.duration import from_millis, iso
from tally.base.errors import TallyError
from tally.cli.output import Json, note, say, show

if TYPE_CHECKING:
    from tally.control.beginnings import Missed
    from tally.jobs.begin import Begun

Since = Annotated[str | None, typer.Option("--from", help="Windows that start at this time or later.")]
Until = Annotated[str | None, typer.Option("--to", help="Windows that start before this time.")]


def reconcile(
    pipeline: Annotated[str, typer.Argument(help="Whose windows.")],
    since: Since = None,
    until: Until = None,
    json: Json = False,
) -> None:
    """Compare both layers, explain what differs, judge and seal; without a range, every closed window not sealed."""
    from tally.cli.reconciliation import print_report
    from tally.jobs.reconcile import reconcile as run

    check_range(pipeline, since, until)
    done = run(pipeline, since, until)
    show(done.as_json(), json, lambda: print_report(done))
    if not done.good:
        raise typer.Exit(1)


def audit(
    pipeline: Annotated[str | None, typer.Argument(help="Whose windows; none named: every pipeline's.")] = None,
    since: Since = None,
    until: Until = None,
    deep: Annotated[bool, typer.Option("--deep", help="State all of them again from the archive, not a part.")] = False,
    json: Json = False,
) -> None:
    """Go over sealed windows again: the table against each seal, each seal against the archive; hold what fails."""
    from tally.catalog.load import catalogue
    from tally.reconcile.audit.sealed_windows import audit as go_over

    check_range(pipeline, since, until)
    known = catalogue()
    names = sorted(known.pipelines) if pipeline is None else [known.pipeline(pipeline).name]
    for name, fault in known.broken.items() if pipeline is None else ():
        note(f"{name}: left out: {str(fault).splitlines()[0]}")
    found = [go_over(name, since, until, deep=deep) for name in names]
    show([one.as_dict() for one in found], json, lambda: say("\n".join(map(str, found))))
    if not all(one.passed for one in found):
        raise typer.Exit(1)


def check_range(pipeline: str | None, since: str | None, until: str | None) -> None:
    """Refuse a range of which one end is missing."""
    if (since is None) != (until is None):
        missing = "--from" if since is None else "--to"
        raise TallyError(
            "a range has two ends", pipeline=pipeline, field=missing, cure=f"give {missing} too, or neither"
        )


def begin(
    pipeline: Annotated[str, typer.Argument(help="Whose numbers.")],
    at: Annotated[str | None, typer.Option("--at", help="Windows that start at this time or later are whole.")] = None,
    why: Annotated[str, typer.Option("--why", help="Kept with it, and shown among the incidents.")] = "",
    json: Json = False,
) -> None:
    """Show where a pipeline's numbers begin, and what retention had eaten before; with --at, say where they begin."""
    from tally.catalog.load import catalogue
    from tally.jobs import begin as beginning

    spec = catalogue().pipeline(pipeline)
    if why and at is None:
        raise TallyError("it says why of nothing", pipeline=pipeline, field="--why", cure="give --at too")
    begun = beginning.known(spec) if at is None else beginning.begin(spec, at, why)
    show(begun.as_json(), json, lambda: say("\n".join(beginning_lines(begun, new=at is not None))))


def beginning_lines(begun: Begun, *, new: bool) -> Iterator[str]:
    """The beginning as a person reads it, and what to do next."""
    name, said = begun.pipeline.name, begun.beginning.said
    if begun.beginning.at is None:
        yield f"{name}: nothing is known to be missing: its topics are read from offset 0, or not archived yet"
        return
    yield f"{name}: its numbers begin at {moment(begun.beginning.at)}; windows that start before are partial"
    if said:
        yield f"  said by {said.by} at {moment(said.at)}" + (f": {said.why}" if said.why else "")
    for one in begun.beginning.missed:
        told = one.as_dict(begun.topic(one))
        sure = "" if told["proven"] else " if the declared lateness holds"
        yield f"  gone before the archive began: {place(one)}; their events are before {told['events_before']}{sure}"
    for one in begun.lacking:
        yield f"  windows that count as whole may lack: {place(one)}"
    if new:
        yield f"next: tally reconcile {name}"
    elif begun.partial:
        yield f"next: {begun.partial:,} slots are partial; tally begin {name} --at T, if they are whole from T on"


def moment(ms: int) -> str:
    return iso(from_millis(ms))


def place(one: Missed) -> str:
    return f"topic {one.topic}, partition {one.partition}, offsets [0, {one.first:,})"
