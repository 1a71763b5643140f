"""The batch layer's Spark application. batch.py PIPELINE --from T --to T [--only] [--archived]"""

from __future__ import annotations

import argparse
import sys

from tally.base.errors import TallyError
from tally.host.answer import refuse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("--from", dest="start", required=True)
    parser.add_argument("--to", dest="end", required=True)
    parser.add_argument("--only", action="store_true", help="just this range, not what late events touched")
    parser.add_argument("--archived", action="store_true", help="refuse what is not archived yet, and archive nothing")
    given = parser.parse_args()
    try:
        from tally.jobs.batch import batch

        print(batch(given.pipeline, given.start, given.end, only=given.only, archived=given.archived))
    except TallyError as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
