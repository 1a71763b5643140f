"""`tally batch`, `plan`, `backfill` and `mend`: the batch layer and its archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tally.cli.output import Json, note, say, show

if TYPE_CHECKING:
    from tally.backfill.plan import Chunk, Plan
    from tally.jobs.reconcile import Reconciled
    from tally.sources.mend import Mended

Pipeline = Annotated[str, typer.Argument(help="The pipeline to restate and reconcile.")]
Since = Annotated[str, typer.Option("--from", help="Start of the first window, ISO 8601, UTC.")]
Until = Annotated[str, typer.Option("--to", help="Windows that start before this.")]
Size = Annotated[str, typer.Option("--chunk", help="Windows per job.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def batch(
    pipeline: Annotated[str, typer.Argument(help="The pipeline to restate.")],
    since: Since,
    until: Until,
    only: Annotated[bool, typer.Option("--only", help="Just this range, not older windows with late events.")] = False,
    json: Json = False,
) -> None:
    """Archive what is new in Kafka, then restate the range, and older windows that late events touched."""
    from tally.jobs.batch import batch as run

    report = run(pipeline, since, until, only=only)
    show(report.as_dict(), json, lambda: say(str(report)))


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
    done = [one_chunk(pipeline, one, quiet=json) for one in made.chunks]
    held = [one for one in done if not one.good]
    chunks = [{**chunk.as_dict(), **one.as_json()} for chunk, one in zip(made.chunks, done, strict=True)]
    document = {**made.as_dict(), "verdict": "held" if held else "reconciled", "chunks": chunks}
    show(document, json, lambda: say(f"{pipeline}: {len(done) - len(held)} of {len(done)} chunks reconciled"))
    if held:
        raise typer.Exit(1)


def planned(pipeline: str, since: str, until: str, chunk: str) -> Plan:
    from tally.base.duration import parse_duration, parse_instant
    from tally.catalog.load import catalogue
    from tally.jobs.backfill import plan as make

    catalogue().pipeline(pipeline)
    for time, option in ((since, "--from"), (until, "--to")):  # before Kafka is asked for anything
        parse_instant(time, field=option)
    parse_duration(chunk, field="--chunk")
    return make(pipeline, since, until, chunk)


def one_chunk(pipeline: str, chunk: Chunk, *, quiet: bool) -> Reconciled:
    """One chunk, told before and after."""
    from tally.cli.reconciliation import print_report
    from tally.jobs.backfill import backfill as carry_out

    note(f"{pipeline}: restating {chunk}")
    found = carry_out(pipeline, chunk)
    if not quiet:
        print_report(found)
    return found


def mend(topic: Annotated[str, typer.Argument(help="Whose archive and quarantine.")], json: Json = False) -> None:
    """Hold a topic's archive against its manifests; what differs is read from Kafka again, while that holds it."""
    from tally.catalog.load import catalogue
    from tally.lake.session import session
    from tally.sources.mend import mend as run

    wanted = catalogue().topic(topic)
    done = run(session(f"tally-mend-{topic}"), wanted)
    show(done.as_dict(), json, lambda: print_mended(done))
    if done.gone:
        raise typer.Exit(1)


def print_mended(done: Mended) -> None:
    """What was found, and what became of it."""
    if not (done.found or done.unreadable):
        say(f"{done.topic}: archive and quarantine are as they were written")
    for file in done.unreadable:
        say(f"{done.topic}: could not be read, and is no part of the table any more: {file}")
    for one in done.found:
        say(f"{done.topic}: {one}")
    for partition, ranges in sorted(done.read.items()):
        for start, end in ranges:
            say(f"{done.topic}: read again: partition {partition}, offsets [{start:,}, {end:,})")
    for gone in done.gone:
        say(f"{done.topic}: Kafka does not hold it any more: {gone}; docs/runbook.md, The archive differs")
