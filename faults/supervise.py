"""Supervises the stream driver without an Airflow: watches as the triggerer does, acts as a task of `streams` would."""

from __future__ import annotations

import os
import sys
import time


def main() -> int:
    """Until the campaign is gone: nothing is left behind by one that was killed."""
    from tally.supervise.ensure_driver import ensure_driver
    from tally.supervise.watch import LOOK_SECONDS, Watch

    parent, watch = os.getppid(), Watch()
    while os.getppid() == parent:
        try:
            step = watch.turn()
            if step is not None and step.kind != "tell":
                print(f"{time.strftime('%H:%M:%S')} {ensure_driver()}", flush=True)
        except Exception as error:  # whatever it is, a task would be tried again
            print(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}", flush=True)
        time.sleep(LOOK_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
