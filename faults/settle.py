"""The batch half of a run in one process: archive, restate, compare, judge and seal every pipeline. settle.py FROM TO

Prints one JSON document: by pipeline the reconciliation, or the refusal.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> int:
    out = os.dup(1)
    os.dup2(2, 1)  # what Spark says goes to stderr; stdout is for the document
    start, end = sys.argv[1:3]
    found = settled(start, end)
    with os.fdopen(out, "w") as file:
        json.dump(found, file, default=str)
    return 0


def settled(start: str, end: str) -> dict[str, dict[str, Any]]:
    """Every pipeline of the catalogue, in this process."""
    from tally.catalog.load import catalogue

    return {name: one(name, start, end) for name in sorted(catalogue().pipelines)}


def one(name: str, start: str, end: str) -> dict[str, Any]:
    """One pipeline's range, stated and reconciled."""
    from tally.base.errors import TallyError
    from tally.jobs.batch import batch
    from tally.jobs.reconcile import reconcile as reconciled

    try:
        batch(name, start, end)
        return reconciled(name, start, end).as_json()
    except TallyError as error:
        return {"refused": error.as_dict()}


if __name__ == "__main__":
    sys.exit(main())
