"""Named places where a process can be made to die: TALLY_FAILPOINT="name" or "name:3" (the third time it is passed)."""

from __future__ import annotations

import os
import signal

passed: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Kill this process here, without any cleaning up, if the environment asks for it."""
    wanted, _, times = os.environ.get("TALLY_FAILPOINT", "").partition(":")
    if wanted != name:
        return
    passed[name] = passed.get(name, 0) + 1
    if passed[name] >= int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
