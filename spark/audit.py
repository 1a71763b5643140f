"""Audits the next part of each pipeline's sealed windows; what fails is held. audit.py"""

from __future__ import annotations

import sys

from tally.base.errors import AnswerIsNo, TallyError
from tally.host.answer import refuse


def main() -> int:
    try:
        from tally.catalog.load import catalogue
        from tally.reconcile.audit.sealed_windows import rolling

        found = [rolling(name) for name in sorted(catalogue().pipelines)]
        for one in found:
            print(one)
        held = [one.pipeline for one in found if not one.passed]
        if held:
            raise AnswerIsNo(f"windows of {', '.join(held)} failed their audit and are held", cure="tally incidents")
    except TallyError as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
