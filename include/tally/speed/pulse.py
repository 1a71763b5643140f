"""A driver's sign of life: a thread that writes it every two seconds, and only while the driver really lives.

It asks the JVM for the time before it writes, and it falls silent when the driver's own loop has not turned for long: a
stopped JVM or a loop that hangs is seen as silence, from outside, by whoever watches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

BEAT_SECONDS = 2.0
# One turn of the loop may ask a silent Kafka about several topics, or wait for a query to stop: a minute. Three are no
# turn at all. A shorter limit would end a driver that is only slow.
LOOP_PATIENCE = 180.0


class Pulse:
    """Beats until it is stopped; `turned` is for the driver's loop to call."""

    def __init__(self, write: Callable[[], None], jvm: Callable[[], Any]) -> None:
        self.write, self.jvm = write, jvm
        self.turned_at = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, name="pulse", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def turned(self) -> None:
        self.turned_at = time.monotonic()

    def stop(self) -> None:
        self.over.set()
        self.thread.join(timeout=BEAT_SECONDS)

    def run(self) -> None:
        trouble = ""
        while not self.over.wait(BEAT_SECONDS):
            if time.monotonic() - self.turned_at > LOOP_PATIENCE:
                continue
            try:
                jvm = self.jvm()
                if jvm is not None:
                    jvm.java.lang.System.nanoTime()
                self.write()
                trouble = ""
            except SQLAlchemyError as error:  # a full disk, a database that restarts: the next beat may be written
                said = str(error).splitlines()[0]
                if said != trouble:
                    print(f"the control store takes no sign of life: {said}", flush=True)
                trouble = said
            except Exception as error:  # the JVM is gone: that is silence
                if str(error) != trouble:
                    print(f"no sign of life: {type(error).__name__}", flush=True)
                trouble = str(error)
