"""The kernel lock: one holder, free when it dies, and no child outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tally.base.errors import TallyError
from tally.host import lock
from tally.host.process import read_json

# Holds the lock, with a child that ignores its parent's death, and says so; ends on a line of input.
HOLDER = """
import subprocess, sys
from pathlib import Path
from tally.host import lock
held = lock.hold(Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
held.adopt(child.pid)
print(child.pid, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    path = tmp_path / "run" / "stream-tally.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    child = int(process.stdout.readline())
    yield process, child, path
    process.kill()
    process.wait()
    if psutil.pid_exists(child):
        psutil.Process(child).kill()


def test_a_second_holder_is_refused_and_told_who_the_first_is(other: tuple[subprocess.Popen[str], int, Path]) -> None:
    process, _, path = other
    with pytest.raises(TallyError, match=f"held by process {process.pid}"):
        lock.hold(path)
    assert lock.is_held(path)
    holder = lock.holder(path)
    assert holder is not None and holder.pid == process.pid


def test_a_killed_holder_holds_nothing_and_its_child_is_ended_first(
    other: tuple[subprocess.Popen[str], int, Path],
) -> None:
    process, child, path = other
    process.kill()
    process.wait()
    assert psutil.pid_exists(child), "the child keeps no lock, but lives on"
    assert not lock.is_held(path)
    with lock.hold(path):
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_reused_pid_is_not_taken_for_the_child(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        path.write_text(f'{{"pid": 1, "created": 1, "children": [{{"pid": {bystander.pid}, "created": 12345.0}}]}}')
        with lock.hold(path):
            assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_child_that_does_not_end_leaves_the_lock_free_for_the_next_try(
    other: tuple[subprocess.Popen[str], int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, child, path = other
    process.kill()
    process.wait()
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "kill", lambda _: None)  # as one that waits for a dead disk
        patch.setattr(lock, "CHILD_PATIENCE", 0.1)
        with pytest.raises(TallyError, match=f"process {child} outlived its driver"):
            lock.hold(path)
    assert not lock.is_held(path)
    with lock.hold(path):
        pass


def test_a_holder_and_its_child_are_known_after_the_clock_was_set(
    other: tuple[subprocess.Popen[str], int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the wall clock they then began an hour later than was written: the kernel moves the machine's start too."""
    process, child, path = other
    began = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: began + 3_600)
    holder = lock.holder(path)
    assert holder is not None and holder.pid == process.pid
    process.kill()
    process.wait()
    with lock.hold(path):
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_it_waits_for_a_lock_that_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    first = lock.hold(path)
    script = f"from pathlib import Path; from tally.host import lock; lock.hold(Path({str(path)!r}), wait=30)"
    second = subprocess.Popen([sys.executable, "-c", script])
    time.sleep(1.0)
    assert second.poll() is None
    first.release()
    first.release()
    assert second.wait(timeout=30) == 0


def test_asking_leaves_a_free_lock_free(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert not lock.is_held(path)
    assert not path.exists()
    with lock.hold(path):
        assert lock.is_held(path)
    assert not lock.is_held(path)
    assert lock.holder(path) is None


def test_a_tables_writer_is_ended_only_where_its_driver_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    jvm = subprocess.Popen(["sleep", "300"])
    try:
        with lock.table("batch", "p", jvm=jvm.pid):
            pass
        with pytest.raises(ValueError, match="a job that failed"), lock.table("batch", "p", jvm=jvm.pid):
            raise ValueError("a job that failed")
        with lock.table("batch", "p"):
            assert jvm.poll() is None, "its driver went on, or failed with its job done"
        code = "import os, sys; from tally.host import lock; l = lock.hold(lock.table_path('batch', 'p')); "
        code += "l.adopt(int(sys.argv[1])); os.kill(os.getpid(), 9)"
        assert subprocess.run([sys.executable, "-c", code, str(jvm.pid)], check=False).returncode == -9
        with lock.table("batch", "p"):
            assert not psutil.pid_exists(jvm.pid)
    finally:
        jvm.kill()
        jvm.wait()


def test_a_table_has_one_lock_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    with (
        lock.table("archive", "rides"),
        lock.table("archive", "payments"),
        pytest.raises(TallyError, match="table-archive-rides"),
        lock.table("archive", "rides", wait=0),
    ):
        pass


def test_who_reads_while_a_record_is_written_anew_finds_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    held = lock.hold(path)
    over, torn = threading.Event(), list[str]()

    def read() -> None:
        while not over.is_set():
            text = path.read_text()
            if read_json(path).get("pid") != os.getpid():
                torn.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1_000):
        held.adopt(os.getpid()) if number % 3 else held.disown()
    over.set()
    reader.join()
    held.release()
    assert torn == []
