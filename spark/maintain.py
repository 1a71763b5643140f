"""Keeps the batch layer's Delta tables small. maintain.py"""

from __future__ import annotations

import sys

from tally.base.errors import TallyError
from tally.host.answer import refuse


def main() -> int:
    try:
        from tally.batch.maintain import maintain
        from tally.lake.session import session

        for tidied in maintain(session("tally-maintain")):
            print(tidied)
    except TallyError as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
