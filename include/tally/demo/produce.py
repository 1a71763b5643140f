"""Produces rides and payments: the past as fast as the broker takes it, then live, never an event before its time."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tally.base.duration import from_millis, iso, millis, to_millis
from tally.base.errors import TallyError
from tally.base.safe_text import quoted
from tally.base.settings import settings
from tally.demo.events import CLASSES, PAYMENTS, RIDES, Disorder, Record
from tally.demo.progress import Progress
from tally.demo.rides import Rides
from tally.demo.sender import Sender
from tally.demo.tlc import TlcRides

# Records between looks at the clock, the delivery reports and the wish to stop: some 10 ms of work.
BREATH = 1000
MOST_RIDES = 1_000_000_000  # four months at the default rate; what is ordered by count is worked out beforehand


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to produce; without `past`, `count` and `start` it begins now and goes on."""

    rate: float = 100.0
    seed: int = 1
    past: timedelta | None = None
    start: datetime | None = None
    lasting: timedelta | None = None
    count: int | None = None
    csv: Path | None = None
    strict: bool = False
    payments: bool = True
    disorder: Disorder = field(default_factory=Disorder)

    def check(self) -> None:
        """Refuse what cannot be meant."""
        d = self.disorder
        if not 0 < self.rate <= 1_000_000:
            raise TallyError(f"{self.rate:g} is no rate", field="--rate", cure="give rides per second, above 0")
        if not (min(d.late, d.duplicates, d.bad) >= 0 and d.total <= 1):  # NaN is neither
            raise TallyError("shares lie in 0..1", field="--late/--duplicates/--bad", cure="have them sum to 1 or less")
        if self.count is not None and not 0 <= self.count <= MOST_RIDES:
            raise TallyError(f"{self.count} is no number of rides", field="--count", cure=f"give 0 to {MOST_RIDES:,}")
        if self.csv and not (os.path.exists(self.csv) and not os.path.isdir(self.csv)):
            raise TallyError(f"no file {quoted(str(self.csv))}", field="--csv", cure="give a readable file")
        if self.csv and self.past:
            raise TallyError("a CSV brings its own past", field="--past", cure="leave it out, or move it with --start")
        if self.strict and not self.csv:
            raise TallyError("only a CSV has lines to be strict about", field="--strict", cure="leave it out")
        if self.start and not self.csv and self.start > from_millis(_now()):
            raise TallyError(f"{iso(self.start)} lies in the future", field="--start", cure="give a time in the past")

    @property
    def topics(self) -> tuple[str, ...]:
        return (RIDES, PAYMENTS) if self.payments else (RIDES,)


def produce(order: Order, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Carry out the order until it is done or SIGTERM or Ctrl-C comes; what was sent, by topic and class."""
    order.check()
    progress = Progress(settings().home / "produce")
    try:
        sender = Sender(order.topics, settings().home / "truth")
        began, source = time.monotonic(), _source(order, progress, say)
        try:
            with _stopping() as stop, _collector_at_rest():
                _drive(source, sender, progress, stop, say)
        finally:
            sender.close()
            pending = source.pending if isinstance(source, Rides) else None
            progress.close(source.next_id, _reached(source, progress), pending)
    finally:
        progress.release()
    return _report(source, sender, time.monotonic() - began)


def _source(order: Order, progress: Progress, say: Callable[[str], None]) -> Rides | TlcRides:
    now = _now()
    until = now + millis(order.lasting) if order.lasting is not None else None
    if order.csv:
        move = to_millis(order.start) if order.start else None
        return TlcRides(
            path=order.csv,
            first_id=progress.next_id,
            count=order.count,
            until_ms=until,
            rate=order.rate,
            start_ms=now,
            payments=order.payments,
            strict=order.strict,
            move_to_ms=move,
        )
    start = _start(order, progress.last_ms, now)
    ends = start + int((order.count or 0) * 1000 / order.rate)
    if ends > now and order.past is None and order.lasting is None and order.count:
        say(
            f"this home has rides up to {iso(from_millis(start))}: at {order.rate:g}/s the next {order.count:,} end "
            f"{(ends - now) / 1000:.0f} s from now, and none is sent before its time (--start or a higher --rate helps)"
        )
    return Rides(
        seed=order.seed,
        first_id=progress.next_id,
        count=order.count,
        until_ms=until,
        rate=order.rate,
        start_ms=start,
        payments=order.payments,
        disorder=order.disorder,
        pending=progress.take_pending(start),
    )


def _start(order: Order, last_ms: int | None, now: int) -> int:
    """The first nominal time: as ordered, but after what this home has already had, unless --start says otherwise."""
    if order.start:
        return to_millis(order.start)
    start = now
    if order.past is not None:
        start = now - millis(order.past)
    elif order.count is not None and order.lasting is None:
        start = now - int(order.count * 1000 / order.rate)
    return start if last_ms is None else max(start, last_ms + max(1, int(1000 / order.rate)))


def _drive(
    source: Rides | TlcRides,
    sender: Sender,
    progress: Progress,
    stop: threading.Event,
    say: Callable[[str], None],
) -> None:
    """Send every record at its time, or at once where that has passed."""
    began, clock, behind = time.monotonic(), _now(), source.start_ms < _now() - 1000
    progress.note(source.next_id, _reached(source, progress))
    flushed = time.monotonic()
    for number, record in enumerate(source, 1):
        if record.due > clock:
            if behind and record.due > _now():
                behind = False
                gc.enable()
                say(f"the past is sent: {number - 1:,} records in {time.monotonic() - began:.1f} s; live from here on")
            clock = _wait(record, sender, stop)
        if stop.is_set() and record.due > clock:
            _put_back(source, record)
            return
        sender.send(record)
        if number % BREATH == 0 or time.monotonic() > flushed + 1:
            sender.poll()
            progress.note(source.next_id, _reached(source, progress))
            if time.monotonic() > flushed + 1:
                sender.flush_truth()
                flushed = time.monotonic()
            if stop.is_set():
                return


def _wait(record: Record, sender: Sender, stop: threading.Event) -> int:
    """Take delivery reports until the record is due or a stop is wished; the time it then is."""
    while (now := _now()) < record.due and not stop.is_set():
        sender.poll(min(0.1, (record.due - now) / 1000))
        if record.due - now > 1000:
            sender.flush_truth()
    return now


def _reached(source: Rides | TlcRides, progress: Progress) -> int | None:
    """The nominal time of the last ride; a CSV has its own times and leaves the home's alone."""
    return source.last_ms if isinstance(source, Rides) else progress.last_ms


def _put_back(source: Rides | TlcRides, record: Record) -> None:
    if isinstance(source, Rides):
        source.pending.add(record.due, record)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No garbage collection while the past is sent: it makes no cycles, and looking for them takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, where this thread may hear them."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _report(source: Rides | TlcRides, sender: Sender, seconds: float) -> dict[str, Any]:
    total = sum(sender.sent.values())
    topics = {
        topic: {kind: sender.sent[topic, kind] for kind in CLASSES if sender.sent[topic, kind]}
        for topic in (RIDES, PAYMENTS)
    }
    report: dict[str, Any] = {
        "sent": topics,
        "records": total,
        "rides": source.next_id - source.first_id,
        "seconds": round(seconds, 3),
        "rate": round(total / seconds, 1) if seconds else 0.0,
        "next_ride_id": source.next_id,
    }
    if isinstance(source, TlcRides):
        report |= {"rides": sum(topics[RIDES].values()), "unusable": source.unusable, "unusable_lines": source.shown}
    return report


def _now() -> int:
    return time.time_ns() // 1_000_000
