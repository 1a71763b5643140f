"""One run: a stack, a producer, a fault in between, then everything is settled and every invariant looked at."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from faults import invariants, network, tables
from faults.producer import Disorder, Sender
from faults.report import Heal, Result
from faults.stack import Stack, running, until
from faults.truth import MINUTE, SHAPES

# Three starts of a driver on a busy machine; what takes longer did not heal without hands.
HEAL_SECONDS = 120.0


@dataclass
class Run:
    """A running Tally under load, and what has been seen of it so far."""

    stack: Stack
    sender: Sender
    rng: random.Random
    result: Result
    deadline: float
    said: list[str] = field(default_factory=list)  # what refusals said, where no incident holds it
    over: bool = False  # the fault has looked at everything itself: nothing is left to settle

    def newest(self) -> dict[str, int]:
        """The last micro-batch of each pipeline, by the control store; -1 where none was."""
        from tally.catalog.load import catalogue
        from tally.control import ledger

        found = {}
        for name in self.stack.pipelines:
            last = ledger.newest(name, catalogue().pipeline(name).version)
            found[name] = -1 if last is None else last.batch
        return found

    def moves(self, seconds: float = HEAL_SECONDS) -> bool:
        """Whether every pipeline commits micro-batches from here on."""
        before: dict[str, int] = {}
        until(lambda: before.update(quiet(self.newest) or {}) or before, seconds)

        def further() -> bool:
            now = quiet(self.newest)
            return bool(now) and all(now[name] > before[name] for name in before)

        return until(further, seconds)

    def heals(self, point: str, since: float, by: str = "itself") -> None:
        """Wait until all is well again after a fault, and write down how long that took."""
        if self.moves():
            self.result.heals.append(Heal(point=point, seconds=round(time.monotonic() - since, 1), by=by))
        else:
            self.broken("I5", f"after {point} it did not heal within {HEAL_SECONDS:.0f} s")

    def broken(self, invariant: str, what: str) -> None:
        self.result.broken.append(invariants.Broken(invariant=invariant, pipeline="-", what=what))

    def one_writer(self) -> None:
        """I4 so far, cheap enough to look at between two faults."""
        for name in self.stack.pipelines:
            for kind, what in invariants.one_writer(tables.batches(name), set(), []):
                self.result.broken.append(invariants.Broken(invariant=kind, pipeline=name, what=what))

    def caught_up(self) -> bool:
        """Whether every acknowledged record lies behind each pipeline's last micro-batch, and its watermark too."""
        for name in self.stack.pipelines:
            batches = tables.batches(name)
            mine = [one for one in self.sender.sent if one.place[0] == SHAPES[name].topic]
            ends: dict[int, int] = {}
            for batch in batches:
                ends.update({p: end for p, (_, end) in batch.ranges.items()})
            newest = max((one.time for one in mine if one.valid), default=0)
            if any(one.place[2] >= ends.get(one.place[1], 0) for one in mine) or not batches:
                return False
            if batches[-1].watermark < newest - 2 * MINUTE:
                return False
        return True

    def span(self) -> tuple[str, str]:
        times = [one.time for one in self.sender.sent if one.valid]
        return iso(min(times) - 10 * MINUTE), iso(max(times) + 10 * MINUTE)

    def left(self) -> float:
        return self.deadline - time.monotonic()


Fault = Callable[[Run], None]
Settled = Callable[[str, str], dict[str, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A fault by its name: what it does, on which pipelines, with which settings, and for how long at most."""

    name: str
    fault: Fault
    pipelines: Sequence[str] = tuple(SHAPES)
    seconds: float = 240.0
    settings: dict[str, str] = field(default_factory=dict)
    apart: bool = False  # driver and supervisor have a network of their own, which can be cut from the broker's
    mounts: dict[str, int] = field(default_factory=dict)  # small file systems, by the setting that lies on them, in MB
    disorder: Disorder = field(default_factory=Disorder)
    begins: datetime | None = None  # in event time; None: so that it stays behind the clock
    rate: float = 120.0  # records a second
    breaks: bool = True  # something must break, and heal, at least once
    speed: int = 60  # seconds of event time in a second; at 60 the story reaches the present after 40 minutes


def carry_out(kind: Kind, seed: int, seconds: float | None = None, settled: Settled | None = None) -> Result:
    """Run a fault once, from nothing to the last invariant; `settled` does the batch half, else a new process does."""
    began = time.monotonic()
    result = Result(fault=kind.name, seed=seed)
    result.lacking = network.lacking() if kind.apart else ""
    if result.lacking:
        return result
    with running(Stack(kind.pipelines, kind.mounts, apart=kind.apart, **kind.settings)) as stack:
        rng = random.Random(f"{seed} {kind.name}")
        start = None if kind.begins is None else int(kind.begins.timestamp() * 1000)
        sender = Sender(
            stack.bootstrap,
            random.Random(rng.random()),
            rate=kind.rate,
            speed=kind.speed,
            disorder=kind.disorder,
            start_ms=start,
        )
        run = Run(stack, sender, rng, result, began + (seconds or kind.seconds))
        sender.start()
        try:
            if not run.moves():
                run.broken("I5", "the stream did not start")
            kind.fault(run)
            if kind.breaks and not result.heals:
                run.broken("I5", "nothing was broken: what holds is not proven")
            if not run.over:
                settle(run, settled or (lambda *span: stack.settle(span)[1]))
        finally:
            sender.halt.set()
    result.seconds = round(time.monotonic() - began, 1)
    return result


def settle(run: Run, settled: Settled) -> None:
    """End the input, let the stream read it all, reconcile, and look at every invariant."""
    run.stack.disarm()
    run.sender.finish()
    since = time.monotonic()
    if not until(lambda: quiet(run.caught_up), HEAL_SECONDS, 1.0):
        run.broken("I5", f"the stream had not caught up {HEAL_SECONDS:.0f} s after the last record")
    run.result.notes.append(f"caught up {time.monotonic() - since:.1f} s after the last record")
    run.stack.stop_driver()
    look(run, settled(*run.span()))


def look(run: Run, found: dict[str, dict[str, Any]]) -> None:
    """Every invariant, for each pipeline."""
    for name in run.stack.pipelines:
        seen = tables.look(name, found.get(name, {}), " ".join(run.said))
        run.result.checked.append(invariants.check(run.sender.sent, seen, retained=True))


def quiet(what: Callable[[], Any]) -> Any:
    """What a look gives, or None: one that meets a fault at work sees nothing, and is tried again."""
    with suppress(Exception):
        return what()
    return None


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
