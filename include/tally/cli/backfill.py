"""`tally plan` and `tally backfill`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tally.cli.output import Json, note, say, show

Pipeline = Annotated[str, typer.Argument(help="The pipeline to restate and reconcile.")]
Since = Annotated[str, typer.Option("--from", help="Start of the first window, ISO 8601, UTC.")]
Until = Annotated[str, typer.Option("--to", help="Windows that start before this.")]
Size = Annotated[str, typer.Option("--chunk", help="Windows per job.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def plan(pipeline: Pipeline, since: Since, until: Until, chunk: Size = "24 hours", json: Json = False) -> None:
    """Say what a backfill of a range would do, and whether the archive and Kafka still hold all it needs."""
    made = planned(pipeline, since, until, chunk)
    show(made.as_dict(), json, lambda: say(str(made)))
    if not made.possible:
        raise typer.Exit(1)


def backfill(
    pipeline: Pipeline,
    since: Since,
    until: Until,
    chunk: Size = "24 hours",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Restate a range of windows chunk by chunk, and compare, judge and seal each before the next one."""
    if dry_run:
        return plan(pipeline, since, until, chunk, json)
    made = planned(pipeline, since, until, chunk).require()
    done = [run(pipeline, one, quiet=json) for one in made.chunks]
    held = [one for one in done if one["verdict"] != "reconciled"]
    document = {**made.as_dict(), "verdict": "held" if held else "reconciled", "chunks": done}
    show(document, json, lambda: say(f"{pipeline}: {len(done) - len(held)} of {len(done)} chunks reconciled"))
    if held:
        raise typer.Exit(1)


def planned(pipeline: str, since: str, until: str, chunk: str) -> Any:
    from tally.backfill.coverage import coverage
    from tally.backfill.plan import plan as make
    from tally.catalog.duration import parse_duration, parse_instant
    from tally.catalog.load import catalogue

    spec = catalogue().pipeline(pipeline)
    for time, option in ((since, "--from"), (until, "--to")):  # before Kafka is asked for anything
        parse_instant(time, field=option)
    parse_duration(chunk, field="--chunk")
    return make(spec, since, until, coverage=coverage(spec), chunk=chunk)


def run(pipeline: str, chunk: Any, *, quiet: bool) -> dict[str, Any]:
    """One chunk: restated, compared, judged and sealed; what came of it."""
    from tally.batch.report import batch
    from tally.cli.reconcile import reconciled
    from tally.reconcile.report import print_report

    ends = chunk.as_dict()
    note(f"{pipeline}: restating {chunk}")
    batch(pipeline, ends["from"], ends["to"], only=True)
    found = reconciled(pipeline, ends["from"], ends["to"])
    if not quiet:
        print_report(found)
    return {**ends, **found}
