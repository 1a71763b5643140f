"""Where the time goes: JFR in a JVM, samples of all threads in Python; `--profile` has both written beside a run.

`python -m bench.peers.profile FILE VERB...` is `tally VERB...` with the sampling thread in it.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_SECONDS = 0.01
DEEPEST = 60


def recordings(folder: Path | None, run: str) -> Path | None:
    """The folder of one run's recordings; None where there are to be none."""
    if folder is None:
        return None
    found = folder / run
    found.mkdir(parents=True, exist_ok=True)
    return found


def java_option(folder: Path) -> str:
    """What a JVM is started with to record itself; `jfr print --events jdk.ExecutionSample FILE` shows it."""
    return f"-XX:StartFlightRecording=filename={folder / 'profile.jfr'},settings=profile"


def python_file(folder: Path) -> Path:
    """Where the samples of a Python process go: a stack and its count a line, as flame graphs are made of."""
    return folder / "profile.folded"


def stack(frame: FrameType | None) -> str:
    """A thread's frames from the outermost on, the way flame graphs want them."""
    found: list[str] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}")
        frame = frame.f_back
    return ";".join(reversed(found))


class Sampler:
    """Counts the stacks of all threads of this process but its own, and writes them down at the end."""

    def __init__(self, file: Path) -> None:
        self.file, self.stacks, self.over = file, Counter[str](), threading.Event()
        self.thread = threading.Thread(target=self.run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.file.write_text("".join(f"{where} {count}\n" for where, count in self.stacks.most_common()))

    def run(self) -> None:
        me = threading.get_ident()
        while not self.over.wait(EVERY_SECONDS):
            self.stacks.update(stack(frame) for thread, frame in sys._current_frames().items() if thread != me)


def main() -> None:
    from tally.cli import main as cli

    file = Path(sys.argv[1])
    sys.argv = ["tally", *sys.argv[2:]]
    with Sampler(file):
        cli()


if __name__ == "__main__":
    main()
