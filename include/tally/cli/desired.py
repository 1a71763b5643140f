"""`tally pause`, `resume`, `restart` and `stop`: what a person wants of streams."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tally.cli.output import Json, say, show

Pipelines = Annotated[list[str], typer.Argument(help="Which pipelines.")]
Why = Annotated[str, typer.Option("--why", help="Shown to whoever finds the stream so.")]


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
    from tally.supervise import wishes

    check_reason(why)
    known = [catalogue().pipeline(name).name for name in names]  # all of them, before any is touched
    found = [getattr(wishes, action)(name, by=getpass.getuser(), why=why) for name in known]

    def lines() -> None:
        for one in found:
            say(str(one))

    show(found, json, lines)
