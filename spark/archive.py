"""Archives what is new of a topic, for all pipelines that read it. archive.py TOPIC"""

from __future__ import annotations

import argparse
import sys

from tally.base.errors import TallyError
from tally.host.answer import refuse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic")
    given = parser.parse_args()
    try:
        from tally.jobs.archive import archive

        print(archive(given.topic))
    except TallyError as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
