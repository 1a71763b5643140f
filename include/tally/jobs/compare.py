"""One comparison by the arguments of its task: without Spark where that tells all, else in an application of Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tally.reconcile import comparison
from tally.reconcile.compare import SparkIsNeeded, Start, compare, no_spark


def compared(arguments: Sequence[str], *, spark: Start | None = None) -> str:
    """Compare PIPELINE [--from T --to T] [--ticket TEXT]; what was found, in a line."""
    parser = argparse.ArgumentParser(prog="reconcile.py", description=compared.__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("--from", dest="start")
    parser.add_argument("--to", dest="end")
    parser.add_argument("--ticket", default="", help="what this comparison can be found by")
    given = parser.parse_args(arguments)
    number = compare(given.pipeline, given.start, given.end, given.ticket, spark=spark)
    found = comparison.of(number)
    return (
        f"{given.pipeline}: {found.windows:,} rows compared, {found.different:,} different, "
        f"{found.unexplained:,} unexplained; reconciliation {number}"
    )


def without_spark(arguments: Sequence[str]) -> str | None:
    """The same where no JVM is needed to tell it; None where one is, and nothing is kept then."""
    try:
        return compared(arguments, spark=no_spark)
    except SparkIsNeeded:
        return None
