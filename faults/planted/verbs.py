"""The verbs that a user's schedule runs, in this process, and what each of them says where its answer is no."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from faults.planted.story import ELSEWHERE, HOUR

if TYPE_CHECKING:
    from faults.planted.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Said:
    """What came of one verb: nothing to say, a refusal in words, or a crash that no person was meant to see."""

    verb: str
    refused: str = ""
    crashed: str = ""
    found: Any = field(default=None, repr=False)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.verb} ({self.seconds:.1f} s): {self.refused or self.crashed or 'done'}"


def run(verb: str, act: Callable[[], Any]) -> Said:
    from tally.base.errors import TallyError

    began = time.monotonic()
    try:
        done = Said(verb=verb, found=act())
    except TallyError as error:
        done = Said(verb=verb, refused=str(error))
    except Exception as error:  # what a person would see as an unexpected failure
        done = Said(verb=verb, crashed=f"{type(error).__name__}: {str(error)[:600]}")
    return replace(done, seconds=time.monotonic() - began)


def expect(said: Said) -> None:
    """Nothing is to be wrong before anything is harmed."""
    if said.refused or said.crashed:
        raise RuntimeError(str(said))


def stream(stage: Stage) -> Said:
    from tally.speed.driver import Driver

    def act() -> None:
        for error in Driver([stage.name], until_caught_up=True).run():
            raise error

    return run("stream", act)


def batch(stage: Stage, start: int, end: int) -> Said:
    from tally.base.duration import from_millis, iso
    from tally.jobs.batch import batch as restated

    return run("batch", lambda: restated(stage.name, iso(from_millis(start)), iso(from_millis(end))).as_dict())


def reconcile(stage: Stage) -> Said:
    from tally.jobs.reconcile import reconcile as reconciled

    return run("reconcile", lambda: reconciled(stage.name, None, None).as_json())


def audit(stage: Stage, *, deep: bool = False) -> Said:
    from tally.reconcile.audit.sealed_windows import audit as looked

    return run("audit --deep" if deep else "audit", lambda: looked(stage.name, deep=deep).as_dict())


def read(stage: Stage) -> Said:
    from tally.catalog.load import catalogue
    from tally.serving.read import read as rows

    return run("read", lambda: rows(catalogue().pipeline(stage.name)).to_pylist())


def schedule(stage: Stage, *, deep: bool = False) -> list[Said]:
    """What a schedule runs once more has arrived: no range is named but an hour that has nothing to do with it."""
    done = [stream(stage), batch(stage, ELSEWHERE, ELSEWHERE + HOUR), reconcile(stage), audit(stage)]
    if deep:
        done.append(audit(stage, deep=True))
    return [*done, read(stage)]
