"""What supervises the stream driver from outside Airflow: a process that calls `ensure` as a task of the DAG would."""

from __future__ import annotations

import os
import sys
import time

PACE = 1.0
# The product waits two minutes before it takes a silent driver for hung, and a minute for one to end. A campaign has
# not got these minutes; what happens at their end is the same.
SILENCE_MS, STOP_PATIENCE = 15_000, 8.0


def ensure() -> str:
    """Have a driver; the one place in the campaign that knows how the product does it."""
    from tally.supervise import launch

    launch.SILENCE_MS, launch.STOP_PATIENCE = SILENCE_MS, STOP_PATIENCE
    return str(launch.ensure())


def main() -> int:
    """Until the campaign is gone: nothing is left behind by one that was killed."""
    parent, before = os.getppid(), ""
    while os.getppid() == parent:
        try:
            said = ensure()
        except Exception as error:  # whatever it is, a task would be tried again
            said = f"{type(error).__name__}: {error}"
        short = said.split(" spoke ")[0]
        if short != before:
            print(f"{time.strftime('%H:%M:%S')} {said}", flush=True)
        before = short
        time.sleep(PACE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
