"""What people ask of a stream: pause, resume, restart, stop. A wish is kept in the control store and outlives them all.

Its driver follows it within a second; where there is none, or it hangs, a restart sees to that itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tally.base.errors import AnswerIsNo
from tally.catalog.load import catalogue
from tally.control import streams
from tally.control.store import now_ms
from tally.host import driver_files, lock
from tally.host.waiting import until
from tally.supervise import launch
from tally.supervise.ensure_driver import ensure_driver, start_anew
from tally.supervise.policy import look

# A driver writes a sign of life every two seconds: one of which three are missing is not waited for by a person.
BEATS_MISSED_MS = 6_000
# A running micro-batch is given five seconds, a query some more to end, and a loaded machine the rest.
STOP_SECONDS, RESTART_SECONDS = 60.0, 60.0
POLL = 0.2


@dataclass(frozen=True, kw_only=True)
class Granted:
    """A wish, and what became of it."""

    pipeline: str
    state: str  # running | paused | stopped
    by: str
    why: str
    said: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.pipeline}: {self.said}"


def pause(pipeline: str, *, by: str, why: str) -> Granted:
    """Stop the query between two micro-batches and keep it so; its driver and its place stay."""
    return want(pipeline, "paused", by, why, "paused: its query ends after the running micro-batch")


def resume(pipeline: str, *, by: str, why: str) -> Granted:
    """Let it run again, from where it stopped."""
    return want(pipeline, "running", by, why, "wanted running: it goes on where it stopped")


def stop(pipeline: str, *, by: str, why: str) -> Granted:
    """Stop the query, and return once its table is let go of; AnswerIsNo when that takes too long."""
    known = catalogue().pipeline(pipeline)
    streams.want(known.name, "stopped", by=by, why=why)
    running = str((streams.stream(known.name) or {}).get("version") or known.version)  # its file may say another by now
    paths = [lock.table_path("speed", known.name, version) for version in {known.version, running}]
    if not until(lambda: not any(map(lock.is_held, paths)), seconds=STOP_SECONDS, every=POLL):
        raise AnswerIsNo(
            f"has not stopped within {STOP_SECONDS:.0f} s; it stays wanted stopped", pipeline=known.name,
            cure=f"tally status; if it hangs: tally restart {known.name}, then stop it again",
        )  # fmt: skip
    return Granted(pipeline=known.name, state="stopped", by=by, why=why, said="stopped; nobody writes its table")


def restart(pipeline: str, *, by: str, why: str) -> Granted:
    """Begin it anew, with its definition as it is now: the query alone where its driver answers, else the driver."""
    name, since = catalogue().pipeline(pipeline).name, now_ms()
    wanted = streams.want_anew(name, by=by, why=why)
    app = host_of(name)
    seen = look(app)
    if not seen.lives:
        said = str(start_anew(since=since))
    elif (seen.silent or 0) > BEATS_MISSED_MS:
        said = replaced(app, since)
    elif served(name, wanted):
        said = "its query was begun anew; its driver and the other streams went on"
    else:
        said = f"its driver did not follow within {RESTART_SECONDS:.0f} s. {replaced(app, since)}"
    return Granted(pipeline=name, state="running", by=by, why=why, said=said)


def host_of(pipeline: str) -> str:
    """The app whose driver hosts a stream: one that a person runs in a terminal, or the common one."""
    app = str((streams.stream(pipeline) or {}).get("app") or driver_files.APP)
    return app if lock.is_held(driver_files.lock_path(app)) else driver_files.APP


def replaced(app: str, since: int) -> str:
    """End a driver that hangs. The common one is started anew; what another one ran, the common one takes over."""
    if app == driver_files.APP:
        return str(start_anew(since=since))
    launch.kill(app)
    return f"the driver {app} hung and was ended. {ensure_driver()}"


def served(pipeline: str, wanted: int) -> bool:
    """Whether the driver begins the stream anew in time."""

    def begun() -> bool:
        row = streams.stream(pipeline) or {}
        return int(row.get("restarts", 0)) >= wanted and row.get("state") in ("starting", "running", "failed")

    return until(begun, seconds=RESTART_SECONDS, every=POLL)


def want(pipeline: str, state: str, by: str, why: str, said: str) -> Granted:
    """Keep what people want of a stream; its driver sees to it."""
    name = catalogue().pipeline(pipeline).name
    streams.want(name, state, by=by, why=why)
    return Granted(pipeline=name, state=state, by=by, why=why, said=said)
