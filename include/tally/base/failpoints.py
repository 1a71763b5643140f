"""Named places where a process can be made to die: TALLY_FAILPOINT="name" or "name:3" (the third time it is passed).

"@FILE" asks the file, so that a process that already runs can be made to die; the order is gone with the first one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

passed: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Kill this process here, without any cleaning up, if the environment asks for it."""
    order = os.environ.get("TALLY_FAILPOINT", "")
    file = Path(order[1:]) if order.startswith("@") else None
    if file is not None:
        order = file.read_text() if file.exists() else ""
    wanted, _, times = order.partition(":")
    if wanted != name:
        return
    passed[order] = passed.get(order, 0) + 1
    if passed[order] >= int(times or 1):
        if file is not None:
            file.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)
