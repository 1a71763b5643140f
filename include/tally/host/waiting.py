"""To wait until something is so, and to wait ever longer before what keeps failing is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from operator import not_

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed


def until(
    so: Callable[[], object], *, seconds: float, every: float, sleep: Callable[[float], object] = time.sleep
) -> bool:
    """Whether it is so in time: asked at once, then every so many seconds, and once more when the time is over."""

    def rest(pause: float) -> None:
        sleep(pause)

    asking = Retrying(
        retry=retry_if_result(not_), stop=stop_after_delay(seconds), wait=wait_fixed(every), sleep=rest,
        retry_error_callback=lambda _: False,
    )  # fmt: skip
    return bool(asking(so))


def backoff(failures: int, first: float, most: float) -> float:
    """How long to wait after so many failures in a row: doubled each time, capped, and no two who wait in step."""
    return min(most, first * 2.0 ** min(failures - 1, 20)) * random.uniform(0.8, 1.2)
