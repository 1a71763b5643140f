"""Compares the layers; judging and sealing need no JVM. reconcile.py PIPELINE [--from T --to T] [--ticket TEXT]"""

from __future__ import annotations

import sys

from tally.base.errors import TallyError
from tally.host.answer import refuse


def main() -> int:
    try:
        from tally.jobs.compare import compared

        print(compared(sys.argv[1:]))
    except TallyError as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
