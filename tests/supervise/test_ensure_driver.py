"""One driver: left alone when it lives, replaced when it is dead or hangs, ever later. It is a small stand-in here."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from stand_in import COMMAND, DRIVER, home, registered, silence

from tally.base.errors import AnswerIsNo
from tally.control import incidents, streams
from tally.control.store import store
from tally.control.tables import drivers
from tally.host.process import ended
from tally.supervise import launch, policy
from tally.supervise.ensure_driver import ensure_driver, start_anew
from tally.supervise.policy import look
from tally.supervise.watch import Watch

__all__ = ["home"]
pytestmark = pytest.mark.usefixtures("home")
GONE = policy.Step(kind="start", saw="no driver lives")


def test_none_lives_one_is_started_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    first = ensure_driver(command=COMMAND)
    assert first.saw == "no driver was ever started"
    assert first.pid is not None
    registered()
    second = ensure_driver(command=COMMAND)
    assert (second.pid, second.did) == (first.pid, "nothing to do")
    assert "spoke" in second.saw
    assert psutil.Process(first.pid).ppid() in (1, psutil.Process().pid)
    assert "airflow in the environment: []" in Path(first.log).read_text()


def test_a_killed_driver_is_replaced_and_leaves_no_child_behind() -> None:
    first = ensure_driver(command=COMMAND)
    registered()
    assert first.pid
    (child,) = psutil.Process(first.pid).children()
    deadline = time.monotonic() + 20
    while "no more" not in Path(first.log).read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    psutil.Process(first.pid).send_signal(signal.SIGKILL)
    time.sleep(0.3)
    second = ensure_driver(command=COMMAND)
    assert second.saw == f"driver {first.pid} is gone (no more)"
    assert second.pid not in (None, first.pid)
    assert ended(child)


def test_a_driver_that_says_nothing_is_killed_even_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ensure_driver(command=COMMAND)
    registered()
    assert first.pid
    (child,) = psutil.Process(first.pid).children()
    psutil.Process(first.pid).send_signal(signal.SIGSTOP)
    monkeypatch.setattr(policy, "SILENCE_MS", 500)
    silence(60)
    time.sleep(0.6)
    second = ensure_driver(command=COMMAND)
    assert "has said nothing for 6" in second.saw
    assert second.pid not in (None, first.pid)
    assert not psutil.pid_exists(first.pid) or psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE
    assert ended(child)
    (incident,) = incidents.opened("")
    assert incident.cause == "driver hung"


def test_a_wall_clock_that_jumps_ends_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks silent for an hour, and is heard while one listens."""
    first = ensure_driver(command=COMMAND)
    registered()
    with store().begin() as connection:
        connection.execute(drivers.update().values(launched_at=drivers.c.launched_at - 7_200_000))
    silence(3_600)
    beats = threading.Timer(1.0, streams.heartbeat, ["tally"])
    beats.start()
    second = ensure_driver(command=COMMAND)
    beats.join()
    assert (second.pid, second.did) == (first.pid, "nothing to do")


def kill(pid: int | None) -> None:
    assert pid
    psutil.Process(pid).send_signal(signal.SIGKILL)
    time.sleep(0.3)


def test_a_driver_that_keeps_dying_is_started_ever_later_and_progress_forgives_it() -> None:
    first = ensure_driver(command=COMMAND)
    kill(first.pid)
    second = ensure_driver(command=COMMAND)
    assert second.pid is not None, "the first death is answered at once"
    kill(second.pid)
    third = ensure_driver(command=COMMAND)
    assert third.pid is None and "the next one is started in" in third.did
    assert ensure_driver(command=COMMAND).pid is None, "not before its time, whoever asks"
    assert Watch().turn() is None
    seen = look()
    assert (seen.deaths, seen.lives, 0 < seen.retry_in <= 2_400) == (2, False, True)
    time.sleep(seen.retry_in / 1000)
    assert Watch().turn() is not None
    assert ensure_driver(command=COMMAND).pid is not None
    streams.survived("tally")
    assert look().deaths == 0


def test_a_death_is_counted_once_however_often_one_looks() -> None:
    kill(ensure_driver(command=COMMAND).pid)
    streams.want("trips", "paused", by="test", why="test")
    for _ in range(3):
        assert ensure_driver(command=COMMAND).did == "nothing to do"
    streams.want("trips", "running", by="test", why="test")
    assert ensure_driver(command=COMMAND).pid is not None
    assert look().deaths == 1


def test_a_person_s_restart_replaces_a_driver_that_speaks_and_counts_no_death() -> None:
    first = ensure_driver(command=COMMAND)
    registered()
    second = start_anew(command=COMMAND)
    assert second.pid not in (None, first.pid)
    assert look().deaths == 0


def test_many_that_act_at_once_start_one_driver() -> None:
    """The short form of a campaign of races; each is a process, as tasks of Airflow are."""
    script = f"from tally.supervise.ensure_driver import ensure_driver; print(ensure_driver(command={COMMAND!r}).pid)"
    racers = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    pids = {racer.communicate(timeout=60)[0].strip() for racer in racers}
    assert len(pids) == 1
    assert look().pid == int(pids.pop())


def test_when_every_stream_is_paused_nothing_is_started() -> None:
    streams.want("trips", "paused", by="test", why="test")
    assert ensure_driver(command=COMMAND).pid is None


def test_a_driver_that_ends_at_once_is_a_failure_with_its_last_words() -> None:
    with pytest.raises(AnswerIsNo, match=r"(?s)ended at once.*no Spark jars"):
        ensure_driver(command=[sys.executable, "-c", "raise SystemExit('no Spark jars')"])
    seen = look()
    assert (seen.deaths, seen.uncounted, seen.last_words) == (1, False, "no Spark jars")
    (incident,) = incidents.opened("")
    assert incident.cause == "driver died" and "ended at once" in incident.evidence


def test_a_driver_that_a_person_started_meanwhile_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the lock after the look, before the one that is started here."""
    byhand = subprocess.Popen(COMMAND)
    registered()
    with monkeypatch.context() as patch:
        patch.setattr(
            "tally.supervise.ensure_driver.judged", lambda app: (policy.Seen(app=app, wanted=1, lives=False), GONE)
        )
        patch.setattr(launch.process, "stop", lambda *_, **__: False)
        done = ensure_driver(command=COMMAND)
    assert (done.pid, done.did) == (byhand.pid, f"driver {byhand.pid} came first")
    assert look().deaths == 0 and not incidents.opened("")
    launch.kill()
    byhand.wait(10)


def test_a_hung_driver_that_cannot_be_ended_calls_people_until_it_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in a cluster that does not answer, or one that waits for a dead disk."""
    ensure_driver(command=COMMAND)
    registered()
    monkeypatch.setattr(policy, "SILENCE_MS", 500)
    monkeypatch.setattr("tally.supervise.ensure_driver.LISTEN_SECONDS", 0.6)
    monkeypatch.setattr(launch, "kill", lambda _: False)
    silence(60)
    time.sleep(0.6)
    with pytest.raises(AnswerIsNo, match="cannot be ended from here"):
        ensure_driver(command=COMMAND)
    (incident,) = incidents.opened("")
    assert incident.cause == "driver hung" and "cannot be ended" in incident.evidence
    assert "by hand" in incident.cure
    streams.heartbeat("tally")
    assert ensure_driver(command=COMMAND).did == "nothing to do"
    assert not incidents.opened("")


def test_a_driver_that_hangs_while_the_clock_is_set_back_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ensure_driver(command=COMMAND)
    registered()
    with store().begin() as connection:
        connection.execute(drivers.update().values(launched_at=drivers.c.launched_at + 3_600_000))
    silence(-3_600)
    monkeypatch.setattr("tally.supervise.ensure_driver.SILENCE_MS", 1_000)
    monkeypatch.setattr(policy, "SILENCE_MS", 1_000)
    beats = threading.Timer(0.5, streams.heartbeat, ["tally"])
    beats.start()
    assert ensure_driver(command=COMMAND).pid == first.pid, "it speaks, and was ahead of the clock only"
    beats.join()
    silence(-3_600)
    assert ensure_driver(command=COMMAND).pid not in (None, first.pid)


def die(words: str) -> None:
    """A driver that lives, then another that says something and is gone."""
    first = ensure_driver(command=[sys.executable, "-c", DRIVER.replace('print("no more", flush=True)', words)])
    registered()
    assert first.pid
    psutil.Process(first.pid).send_signal(signal.SIGKILL)
    time.sleep(0.3)


def test_a_driver_that_died_of_a_full_heap_is_told_with_memory_and_the_cure() -> None:
    die("print('Terminating due to java.lang.OutOfMemoryError: Java heap space\\nTraceback\\npy4j: empty', flush=True)")
    second = ensure_driver(command=COMMAND)
    assert "out of memory: the JVM's heap of 1536m was full (Java heap space)" in second.saw
    (incident,) = incidents.opened("")
    assert incident.cause == "driver died"
    assert "TALLY_STREAM_MEMORY" in incident.cure and "TALLY_MAX_OFFSETS_PER_TRIGGER" in incident.cure


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_driver_died_of_is_told_without_its_log_s_stamps(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("TALLY_LOG_FORMAT", form)
    log = "from tally.host import driver_log; driver_log.begin(); import logging; "
    die(log + "logging.getLogger('tally.speed.stream_runner').error('trips: the disk is full')")
    assert ensure_driver(command=COMMAND).saw.endswith("is gone (trips: the disk is full)")


def test_what_an_earlier_driver_said_is_not_what_the_next_one_died_of() -> None:
    die("print('java.lang.OutOfMemoryError: Java heap space', flush=True)")
    quiet = "".join(line for line in DRIVER.splitlines(keepends=True) if not line.startswith("print"))
    second = ensure_driver(command=[sys.executable, "-c", quiet])
    assert second.pid
    psutil.Process(second.pid).send_signal(signal.SIGKILL)
    time.sleep(0.3)
    third = ensure_driver(command=COMMAND)
    assert "was full" not in third.saw
    assert "its log says nothing: it was killed" in third.saw


def test_stop_ends_a_driver_that_was_started_by_hand(home: Path) -> None:
    byhand = subprocess.Popen(COMMAND)
    registered()
    assert launch.stop()
    assert byhand.wait(timeout=5) is not None
    assert not launch.stop()


def test_a_cluster_s_driver_is_known_by_its_job_and_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock and no pid of it can be seen from here; a stand-in for spark-submit says what it was asked."""
    asked: list[str] = []

    class Cluster:
        def start(self, command: object, log: Path) -> str:
            asked.append("start")
            return "streams:tally"

        def stop(self, job: str) -> bool:
            asked.append(f"stop {job}")
            return True

    monkeypatch.setenv("TALLY_LAUNCHER", "kubernetes")
    monkeypatch.setattr(launch, "cluster", lambda _: Cluster())
    assert "started driver streams:tally" in ensure_driver().did
    assert ensure_driver().did == "nothing to do", "a pod that waits for its image is waited for"
    streams.register_driver("tally", "a-pod", 1, 0.0, "log")
    assert ensure_driver().did == "nothing to do"
    silence(60)
    with store().begin() as connection:
        connection.execute(drivers.update().values(launched_at=drivers.c.launched_at - 600_000))
    monkeypatch.setattr("tally.supervise.ensure_driver.LISTEN_SECONDS", 0.6)
    assert "started driver streams:tally" in ensure_driver().did
    assert asked == ["start", "stop streams:tally", "start"], "the silent one is ended before another is started"
    monkeypatch.delenv("TALLY_LAUNCHER")
