"""`tally stream`."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from tally.cli.output import Json, say, show

Pipelines = Annotated[list[str] | None, typer.Argument(help="Which pipelines; none named: all.")]
CaughtUp = Annotated[bool, typer.Option("--until-caught-up", help="End once all that Kafka holds now is read.")]


def stream(pipelines: Pipelines = None, until_caught_up: CaughtUp = False, json: Json = False) -> None:
    """Run the speed layer in the foreground; Ctrl-C ends it between two micro-batches."""
    from tally.control import ledger
    from tally.speed.driver import Driver

    driver = Driver(pipelines or [], until_caught_up=until_caught_up)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(driver, "stopping", True))
    chosen = [hosted.pipeline for hosted in driver.hosted]
    before = {pipeline.name: ledger.applied(pipeline.name, pipeline.version) for pipeline in chosen}
    failed = driver.run()
    found = [told(hosted.pipeline, before[hosted.pipeline.name], hosted.failed) for hosted in driver.hosted]
    document = {"app": driver.app, "ok": not failed, "pipelines": found}
    show(document, json, lambda: print_streams(found))
    if failed:
        raise typer.Exit(max(error.exit_code for error in failed))


def told(pipeline: Any, before: tuple[int, int], failed: Any) -> dict[str, Any]:
    """What this run did to one pipeline, and how it now is."""
    from tally.catalog.duration import from_millis, iso
    from tally.control import ledger, streams

    batches, rows = ledger.applied(pipeline.name, pipeline.version)
    newest, shown = ledger.newest(pipeline.name, pipeline.version), streams.stream(pipeline.name) or {}
    return {
        "pipeline": pipeline.name,
        "version": pipeline.version,
        "state": shown.get("state", "stopped"),
        "reason": shown.get("reason", ""),
        "batches": batches - before[0],
        "rows": rows - before[1],
        "watermark": iso(from_millis(newest.watermark)) if newest else None,
        "failure": failed.as_dict() if failed else None,
    }


def print_streams(found: list[dict[str, Any]]) -> None:
    for one in found:
        line = f"{one['pipeline']}: {one['state']}, {one['batches']:,} micro-batches, {one['rows']:,} rows"
        say(f"{line}, watermark {one['watermark'] or 'none yet'}" + (f": {one['reason']}" if one["reason"] else ""))
