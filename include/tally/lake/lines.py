"""From which line of Python an expression of Spark's comes: told where an author's function runs, and nowhere else.

PySpark tells it to the JVM before and after each of its own calls: four of five calls into the JVM are of that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import utils

guard = threading.Lock()
wanted_by: list[int] = []  # the threads that run an author's function now


@contextmanager
def lines_told() -> Iterator[None]:
    """Meanwhile Spark knows the line of each expression, and names it where one fails; also those of other threads.

    PySpark asks its setting once, and keeps the answer where this puts another.
    """
    with guard:
        wanted_by.append(threading.get_ident())
        utils._enable_debugging_cache = True
    try:
        yield
    finally:
        with guard:
            wanted_by.remove(threading.get_ident())
            utils._enable_debugging_cache = bool(wanted_by)
