"""Waits until a stream's driver has done what a person wished, so that whoever asked is told when it has happened."""

from __future__ import annotations

from typing import Any

from tally.base.errors import AnswerIsNo
from tally.control import streams
from tally.host import driver_files
from tally.host.waiting import until
from tally.supervise.policy import look

# A running micro-batch is given its time to end, and a new driver needs a JVM: 30 s on two busy cores.
PATIENCE = 120.0
POLL = 0.5
# What its driver shows of a stream once an action is done.
DONE = {"pause": "paused", "stop": "stopped", "resume": "running", "restart": "running"}
GIVEN_UP = ("data_lost", "gave_up")


def follow(pipeline: str, action: str) -> str:
    """What has happened, in words, where a driver lives; AnswerIsNo when it has not in time, or cannot."""
    if not lives(pipeline):
        then = "the streams DAG starts one" if DONE[action] == "running" else "nothing of it runs"
        return f"no driver lives: {then}"
    if not until(lambda: settled(pipeline, action), seconds=PATIENCE, every=POLL):
        raise AnswerIsNo(
            f"{action} has not happened within {PATIENCE:.0f} s; it stays wanted", pipeline=pipeline,
            cure=f"tally status; if its driver hangs: tally restart {pipeline}",
        )  # fmt: skip
    row = shown(pipeline)
    if DONE[action] == "running" and row.get("state") in GIVEN_UP:
        cure = f"tally doctor {pipeline}"
        raise AnswerIsNo(f"it does not run: {row.get('reason')}", pipeline=pipeline, cure=cure)
    return f"it is {row.get('state')}" if lives(pipeline) else "its driver has ended"


def settled(pipeline: str, action: str) -> bool:
    """Whether it has happened, or cannot."""
    row, running = shown(pipeline), DONE[action] == "running"
    if running and int(row.get("restarts", 0)) < int(streams.wanted(pipeline)["restarts"]):
        return False
    if running and row.get("state") in GIVEN_UP:
        return True
    return row.get("state") == DONE[action] or (not running and not lives(pipeline))


def shown(pipeline: str) -> dict[str, Any]:
    return streams.stream(pipeline) or {}


def lives(pipeline: str) -> bool:
    return look(str(shown(pipeline).get("app") or driver_files.APP)).lives
