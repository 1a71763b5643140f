"""A reconciliation: compare, judge, seal."""

from __future__ import annotations

from typing import Any

from tally.reconcile import docs
from tally.reconcile.compare import compare
from tally.reconcile.judge import comparison, judge
from tally.reconcile.seal import Sealed, seal


def reconcile(pipeline: str, since: str | None = None, until: str | None = None) -> dict[str, Any]:
    """Compare, judge and seal a range, or all that is due; the document of what came of it."""
    docs.warm()
    number = compare(pipeline, since, until)
    judge(number)
    return document(seal(number))


def document(sealed: Sealed) -> dict[str, Any]:
    """The reconciliation as `tally reconcile --json` prints it."""
    row = comparison(sealed.reconciliation)
    summary = row["summary"]
    first = ("pipeline", "version", "from", "to", "windows", "equal", "different", "rounding", "events", "unexplained")
    return {
        "reconciliation": row["id"],
        **{name: summary[name] for name in first},
        "verdict": row["verdict"],
        "failed": summary["failed"],
        "rows": summary["rows"],
        "sealed": sealed.sealed,
        "partial": sealed.partial,
        "held": sealed.held,
        "open": sealed.open,
        "restated_since": sealed.restated_since,
        "changed": sealed.changed,
        "revisions": {str(revision): count for revision, count in sealed.revisions.items()},
        "open_windows": summary["open_windows"],
        "conservation": summary["conservation"],
        "ingest": summary["ingest"],
        "cut": summary["cut"],
        "data_docs": row["data_docs"],
        "page": summary["data_docs_page"],
    }
