"""A run costs what all its processes cost, also those that nobody waits for, and none of them is left."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil

from bench.peers import meter, profile

BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_an_orphan_is_waited_for_and_its_cpu_is_counted(home: Path, tmp_path: Path) -> None:
    (tmp_path / "burn.py").write_text(BURN)
    command = f"echo @start; ({sys.executable} {tmp_path / 'burn.py'} &) ; echo @end"
    cost = meter.run(["sh", "-c", command], os.environ, tmp_path, patience=60)
    assert cost.code == 0
    assert 0.5 <= cost.cpu_seconds < 5
    assert cost.began <= cost.marks["@start"] <= cost.marks["@end"] <= cost.ended


def test_a_run_that_takes_too_long_is_killed(home: Path, tmp_path: Path) -> None:
    assert meter.run(["sleep", "300"], os.environ, tmp_path, patience=0.5).code == -9


def test_what_is_killed_is_killed_with_all_below_it(tmp_path: Path) -> None:
    below = f"echo $$ > {tmp_path / 'draft'}; mv {tmp_path / 'draft'} {tmp_path / 'pid'}; sleep 300"
    top = psutil.Popen(["sh", "-c", f"sh -c '{below}'; true"])
    while not (tmp_path / "pid").exists():
        time.sleep(0.05)
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    meter.kill_all(top)
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_samples_say_in_which_functions_threads_are(tmp_path: Path) -> None:
    def busy_place() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass

    file = profile.python_file(tmp_path)
    with profile.Sampler(file):
        busy_place()
    stacks = [line for line in file.read_text().splitlines() if "busy_place" in line]
    assert stacks
    assert int(stacks[0].rsplit(" ", 1)[1]) > 0


def test_runs_are_recorded_in_folders_of_their_own_or_nowhere(tmp_path: Path) -> None:
    assert profile.recordings(None, "a") is None
    found = profile.recordings(tmp_path, "a")
    assert found == tmp_path / "a"
    assert found.is_dir()
