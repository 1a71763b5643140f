"""Compares the layers; judging and sealing need no JVM. reconcile.py PIPELINE [--from T --to T] [--ticket TEXT]"""

from __future__ import annotations

import argparse
import sys

from tally.base.errors import TallyError
from tally.host.answer import refuse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("--from", dest="start")
    parser.add_argument("--to", dest="end")
    parser.add_argument("--ticket", default="", help="what this comparison can be found by")
    given = parser.parse_args()
    try:
        from tally.reconcile import comparison
        from tally.reconcile.compare import compare

        number = compare(given.pipeline, given.start, given.end, given.ticket)
        found = comparison.of(number)
        print(
            f"{given.pipeline}: {found.windows:,} rows compared, {found.different:,} different, "
            f"{found.unexplained:,} unexplained; reconciliation {number}"
        )
    except TallyError as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
