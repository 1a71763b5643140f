"""An app's stream driver runs when it should: one call looks, does what is needed, and says what it saw and did.

Doing so again changes nothing: it is decided anew, under a lock, on what is seen then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from tally.base.errors import AnswerIsNo, TallyError
from tally.base.lines import lines_of
from tally.control import incidents, streams
from tally.control.store import now_ms
from tally.host import driver_files, driver_log, lock, process
from tally.host.driver_files import APP
from tally.host.waiting import until
from tally.lake import memory
from tally.supervise import launch
from tally.supervise.policy import SILENCE_MS, Seen, Step, decide, delay_ms, look

# Silence is read off the wall clock, which may jump. Before a driver is ended for it, it is listened to for two beats.
LISTEN_SECONDS = 5.0
WORDS = 300  # characters of a dead driver's last line that are worth keeping
LINES = 400  # of its log that may hold it: below it stand the traces of those who met a JVM that was gone
SILENT = "its log says nothing: it was killed, by a person or by the kernel for want of memory (dmesg says so)"


@dataclass(frozen=True, kw_only=True)
class Done:
    """What was seen, and what was done about it."""

    app: str
    saw: str
    did: str
    pid: int | None
    log: str

    def __str__(self) -> str:
        return f"stream driver {self.app}: {self.saw}; {self.did}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def ensure_driver(app: str = APP, command: Sequence[str] | None = None) -> Done:
    """Have a live driver for the app when any of its streams is wanted."""
    with lock.hold(driver_files.launch_lock_path(app), wait=launch.START_PATIENCE):
        seen, step = judged(app)
        with reported(step):
            return do(seen, step, command)


def judged(app: str) -> tuple[Seen, Step]:
    """What is seen, and needed: who seems silent, or to have spoken in the future, is listened to first."""
    seen = look(app)
    step = decide(seen)
    ahead = seen.lives and (seen.silent or 0) < -LISTEN_SECONDS * 1000
    if step.kind != "replace" and not ahead:
        return seen, step
    if not listened(app, SILENCE_MS / 1000 if ahead else LISTEN_SECONDS):
        seen = look(app)
        return seen, decide(replace(seen, silent=0))
    return seen, decide(replace(seen, silent=SILENCE_MS + 1, age=None)) if ahead else step


def start_anew(app: str = APP, command: Sequence[str] | None = None, *, since: int | None = None) -> Done:
    """End the app's driver whatever it says of itself, and start another: what a person asks for.

    One that was started after `since` (milliseconds), by another who asked too, is as new as was asked for.
    """
    with lock.hold(driver_files.launch_lock_path(app), wait=launch.START_PATIENCE):
        before = look(app)
        if since is not None and before.lives and began(app) >= since:
            did, log = f"driver {before.pid} was started meanwhile", str(driver_files.log_path(app))
            return Done(app=app, saw=f"driver {before.pid} lives", did=did, pid=before.pid, log=log)
        if before.lives:
            launch.kill(app)
        streams.driver_ended(app)  # a person has seen to it: neither this death nor earlier ones count
        streams.survived(app)
        saw = f"driver {before.pid} was ended" if before.lives else "no driver lives"
        return do(look(app), Step(kind="start", saw=saw), command)


def began(app: str) -> int:
    """When the app's driver was last launched, or registered itself."""
    return int((streams.driver(app) or {}).get("launched_at", 0))


def do(seen: Seen, step: Step, command: Sequence[str] | None) -> Done:
    """Carry a step out; the caller holds the launch lock."""
    app, log = seen.app, str(driver_files.log_path(seen.app))
    if step.kind == "nothing":
        if seen.lives:
            incidents.close("", incidents.DRIVER_HUNG, done="it speaks")
        return Done(app=app, saw=step.saw, did="nothing to do", pid=seen.pid if seen.lives else None, log=log)
    if step.kind == "replace":
        launch.kill(app)
        seen = replace(seen, lives=False, uncounted=True) if launch.elsewhere() else look(app)
    if seen.lives:
        raise AnswerIsNo(
            f"{step.saw}, and it cannot be ended from here",
            field=f"stream driver {app}",
            cure=f"end process {seen.pid} by hand; no second one is started beside it",
        )
    if seen.uncounted:
        seen = count_death(seen)
    saw = step.saw if not seen.last_words else f"{step.saw} ({seen.last_words})"
    if step.kind == "start" and seen.retry_in > 0:
        wait = f"{seen.retry_in / 1000:.0f} s"
        report(step, saw, f"the next one is started in {wait}")
        return Done(app=app, saw=saw, did=f"the next one is started in {wait}", pid=None, log=log)
    try:
        driver = launch.start(app, command)
        name = f"driver {driver.job or driver.pid}"
    except AnswerIsNo as error:
        now = look(app)
        if now.lives:  # a person's, that took the lock meanwhile: nothing has died
            return Done(app=app, saw=saw, did=f"driver {now.pid} came first", pid=now.pid, log=log)
        count_death(now)
        raise AnswerIsNo(f"{saw}; {error.message}", field=error.field, cure=error.cure) from None
    report(step, saw, f"started {name}")
    return Done(app=app, saw=saw, did=f"started {name} (log {log})", pid=driver.pid, log=log)


def count_death(seen: Seen) -> Seen:
    """Count the death of the driver that the store still names, and set when the next one may start."""
    deaths, wait = seen.deaths + 1, delay_ms(seen.deaths + 1)
    words = last_words(seen)[:WORDS]
    streams.died(seen.app, deaths, now_ms() + wait, words)
    return replace(seen, uncounted=False, deaths=deaths, retry_in=wait, last_words=words)


def last_words(seen: Seen) -> str:
    """What its log says that a driver died of; a local one that was killed says nothing, and that is said."""
    launched = process.read_json(driver_files.run_file(seen.app))
    mine = "log_from" in launched and launched.get("pid") == seen.pid
    since = int(launched["log_from"]) if mine else 0
    tail = process.tail(driver_files.log_path(seen.app), LINES if mine else 2, since)
    words = memory.last_words(driver_log.messages(lines_of(tail)))
    return words or (SILENT if mine else "")


def report(step: Step, saw: str, did: str) -> None:
    """An incident, where the step answers one; the next micro-batch closes it."""
    if step.cause:
        cure = memory.cure(saw) or "none is needed if it ends by itself; tally status"
        incidents.report("", step.cause, saw, cure=cure, done=did)


@contextmanager
def reported(step: Step) -> Iterator[None]:
    """What cannot be carried out is an incident too: a red task alone calls nobody."""
    try:
        yield
    except TallyError as error:
        seen, cure = f"{step.saw}; {error.message.splitlines()[0]}", error.cure or "see the task act of the streams DAG"
        incidents.report("", step.cause or incidents.DRIVER_DIED, seen, cure=cure, done="tried again, ever later")
        raise


def listened(app: str, seconds: float) -> bool:
    """Whether a silent driver stays silent while one listens."""
    before = (streams.driver(app) or {}).get("heartbeat_at")
    return not until(lambda: (streams.driver(app) or {}).get("heartbeat_at") != before, seconds=seconds, every=0.5)
