"""`tally stream`, `pause`, `resume`, `restart`, `stop` and `rebuild`: the streams of pipelines."""

from __future__ import annotations

import getpass
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tally.cli.output import Json, say, show

if TYPE_CHECKING:
    from tally.base.errors import TallyError
    from tally.catalog.spec import Pipeline
    from tally.speed.start.rebuild import Plan

Chosen = Annotated[list[str] | None, typer.Argument(help="Which pipelines; none named: all.")]
CaughtUp = Annotated[bool, typer.Option("--until-caught-up", help="End once all that Kafka holds now is read.")]
Pipelines = Annotated[list[str], typer.Argument(help="Which pipelines.")]
Path = Annotated[Literal["own", "shared"], typer.Option("--path", help="A query of its own, or its topic's stream.")]
Why = Annotated[str, typer.Option("--why", help="Shown to whoever finds the stream so.")]
WhyAnew = Annotated[str, typer.Option("--why", help="Kept with the new generation, and shown among the incidents.")]


def stream(pipelines: Chosen = None, until_caught_up: CaughtUp = False, json: Json = False) -> None:
    """Run the speed layer in the foreground; Ctrl-C ends it between two micro-batches."""
    from tally.control import ledger
    from tally.host import driver_log
    from tally.speed.driver import Driver

    driver_log.take(logging.getLogger(driver_log.DRIVER), Said())
    driver = Driver(pipelines or [], until_caught_up=until_caught_up)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(driver, "stopping", True))
    chosen = [runner.pipeline for runner in driver.runners]
    before = {pipeline.name: ledger.applied(pipeline.name, pipeline.version) for pipeline in chosen}
    failed = driver.run()
    found = [of_run(runner.pipeline, before[runner.pipeline.name], runner.failed) for runner in driver.runners]
    document = {"app": driver.app, "ok": not failed, "pipelines": found}
    show(document, json, lambda: print_streams(found))
    if failed:
        raise typer.Exit(max(error.exit_code for error in failed))


class Said(logging.Handler):
    """What a driver in the foreground says to whoever started it, without stamps."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run did to one pipeline's stream, and how this now is."""

    pipeline: str
    version: str
    state: str
    reason: str
    batches: int
    rows: int
    watermark: str | None  # ISO 8601
    failure: TallyError | None

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "failure": self.failure.as_dict() if self.failure else None}


def of_run(pipeline: Pipeline, before: tuple[int, int], failed: TallyError | None) -> Run:
    """What became of a pipeline since it had so many micro-batches and rows."""
    from tally.base.duration import from_millis, iso
    from tally.control import ledger, streams

    batches, rows = ledger.applied(pipeline.name, pipeline.version)
    newest, shown = ledger.newest(pipeline.name, pipeline.version), streams.stream(pipeline.name) or {}
    return Run(
        pipeline=pipeline.name,
        version=pipeline.version,
        state=shown.get("state", "stopped"),
        reason=shown.get("reason", ""),
        batches=batches - before[0],
        rows=rows - before[1],
        watermark=iso(from_millis(newest.watermark)) if newest else None,
        failure=failed,
    )


def print_streams(found: Sequence[Run]) -> None:
    for one in found:
        line = f"{one.pipeline}: {one.state}, {one.batches:,} micro-batches, {one.rows:,} rows"
        say(f"{line}, watermark {one.watermark or 'none yet'}" + (f": {one.reason}" if one.reason else ""))


def pause(pipelines: Pipelines, why: Why = "", json: Json = False) -> None:
    """Stop streams between two micro-batches and keep them so, whoever restarts their driver."""
    wish("pause", pipelines, why, json)


def resume(pipelines: Pipelines, why: Why = "", json: Json = False) -> None:
    """Let paused or stopped streams run again; they go on where they stopped."""
    wish("resume", pipelines, why, json)


def restart(pipelines: Pipelines, why: Why = "", json: Json = False) -> None:
    """Begin streams anew, with their definitions as they are now; a driver that hangs is replaced."""
    wish("restart", pipelines, why, json)


def stop(pipelines: Pipelines, why: Why = "", json: Json = False) -> None:
    """Stop streams, and return once each has let go of its table; a driver with nothing left to run ends."""
    wish("stop", pipelines, why, json)


def wish(action: str, names: list[str], why: str, json: bool) -> None:
    from tally.catalog.load import catalogue
    from tally.control.streams import check_reason
    from tally.supervise import desired_state

    check_reason(why)
    known = [catalogue().pipeline(name).name for name in names]  # all of them, before any is touched
    found = [getattr(desired_state, action)(name, by=getpass.getuser(), why=why) for name in known]

    def lines() -> None:
        for one in found:
            say(str(one))

    show(found, json, lines)


def rebuild(
    pipeline: Annotated[str, typer.Argument(help="Whose stream.")],
    path: Path = "own",
    why: WhyAnew = "",
    json: Json = False,
) -> None:
    """Begin a stream anew from the offsets that Kafka still holds; sealed windows stay served from the batch."""
    from tally.catalog.load import catalogue
    from tally.control.streams import check_reason
    from tally.speed.start import rebuild as rebuilding

    wanted = catalogue().pipeline(pipeline)
    check_reason(why)
    if path == "shared":
        check_shared(wanted)
    with rebuilding.hold(wanted):
        planned = rebuilding.plan(wanted, path)
        if not json:
            print_plan(planned)
        closed = rebuilding.apply(planned, why)
    following = f"tally resume {pipeline}, or tally stream {pipeline}; then tally doctor {pipeline}"
    document = {**planned.as_dict(), "why": why, "incidents_closed": closed, "next": following}

    def lines() -> None:
        say(f"done: generation {planned.number} is made, {closed} incidents are closed")
        say(f"next: {following}")

    show(document, json, lines)


def check_shared(pipeline: Pipeline) -> None:
    """Refuse a pipeline whose rows do not add up from parts; to know it takes a JVM."""
    from tally.base.errors import AnswerIsNo
    from tally.parts.path import path_of

    if (refused := path_of(pipeline).own) is not None:
        raise AnswerIsNo(
            f"it cannot share its topic's stream: {refused.reason}",
            pipeline=pipeline.name,
            field="--path",
            where=refused.where,
            cure=f"leave it in a query of its own: tally rebuild {pipeline.name} --path own",
        )


def print_plan(planned: Plan) -> None:
    """What will be done, and what cannot be."""
    from tally.speed.start.rebuild import WORDS

    told = planned.as_dict()
    what = f"generation {planned.number} reads {told['records']:,} records again, {WORDS[planned.path]}"
    say(f"{told['pipeline']} {told['version']}: {what}")
    for topic, parts in planned.starts.items():
        ends = planned.ends[topic]
        for partition, start in parts.items():
            say(f"  {topic}, partition {partition}: offsets [{start:,}, {ends[partition]:,}) and what comes later")
    for topic, identity in planned.renewed.items():
        say(f"  {topic} was recreated: from now on it is the topic of id {identity}")
    if planned.lost:
        span = planned.span()
        say(
            f"  {len(planned.lost):,} windows from {span['from']} to {span['to']} are not sealed and may hold events "
            "from before these offsets: the stream cannot make them again; the batch has what it archived"
        )
    for topic, gaps in planned.unarchived.items():
        for partition, (start, to) in gaps.items():
            say(f"  in neither archive nor Kafka: {topic}, partition {partition}, offsets [{start:,}, {to:,})")
    say("  older rows of the stream's table go when it starts; sealed windows stay, from the batch")
