"""The parts of a demo, each pending, starting, up, failed or stopped, since when, and with a word on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

State = Literal["pending", "starting", "up", "failed", "stopped"]


@dataclass
class Part:
    """One thing that runs; `seconds` is how long it took to come up, or has taken so far."""

    name: str
    state: State = "pending"
    note: str = ""
    began: float = 0.0
    took: float | None = None
    lives: Callable[[], bool] | None = None

    @property
    def seconds(self) -> float | None:
        if self.took is not None:
            return self.took
        return time.monotonic() - self.began if self.began else None

    def line(self) -> str:
        """The part in one line of plain text."""
        after = f" after {self.seconds:.0f} s" if self.seconds is not None and self.state != "starting" else ""
        return f"{self.name}: {self.state}{after}{f' ({self.note})' if self.note else ''}"


@contextmanager
def starting(part: Part) -> Iterator[Part]:
    """The part is starting inside this block, then up, or failed when that ends with an error."""
    part.state, part.began = "starting", time.monotonic()
    try:
        yield part
    except BaseException as error:
        part.state, part.note = "failed", part.note or str(error).splitlines()[0]
        raise
    finally:
        part.took = time.monotonic() - part.began
    if part.state == "starting":
        part.state = "up"


def look_after(part: Part) -> None:
    """A part that was up and lives no more is failed; one that is back is up."""
    if part.lives is None or part.state not in ("up", "failed") or part.took is None:
        return
    alive = part.lives()
    if part.state == "up" and not alive:
        part.state, part.note = "failed", "it has ended"
    elif part.state == "failed" and alive:
        part.state, part.note = "up", "back again"
