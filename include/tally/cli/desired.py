"""`tally pause` and `tally resume`: the state that a person wants a stream in."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tally.cli.output import Json, show

Pipelines = Annotated[list[str], typer.Argument(help="Which pipelines.")]
Why = Annotated[str, typer.Option("--why", help="Shown to whoever finds the stream paused.")]


def pause(pipelines: Pipelines, why: Why = "", json: Json = False) -> None:
    """Stop streams between two micro-batches and keep them so, whoever restarts their driver."""
    want(pipelines, "paused", why, json)


def resume(pipelines: Pipelines, why: Why = "", json: Json = False) -> None:
    """Let paused streams run again; they go on where they stopped."""
    want(pipelines, "running", why, json)


def want(names: list[str], state: str, why: str, json: bool) -> None:
    from tally.catalog.load import catalogue
    from tally.control import streams

    known = [catalogue().pipeline(name).name for name in names]
    for name in known:
        streams.want(name, state, by=getpass.getuser(), why=why)
    found = [streams.wanted(name) for name in known]

    def lines() -> None:
        for one in found:
            typer.echo(f"{one['pipeline']}: wanted {one['state']}")

    show(found, json, lines)
