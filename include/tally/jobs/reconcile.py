"""A reconciliation: compare, judge, seal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tally.reconcile import comparison, data_docs
from tally.reconcile.compare import compare
from tally.reconcile.comparison import RECONCILED, Comparison, Verdict
from tally.reconcile.judge import judge
from tally.reconcile.seal import Sealed, seal


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """A comparison with the verdict on it, and what became of its slots."""

    compared: Comparison
    verdict: Verdict
    sealed: Sealed

    @property
    def good(self) -> bool:
        return self.verdict.word == RECONCILED

    def as_json(self) -> dict[str, Any]:
        """The reconciliation as `tally reconcile --json` prints it."""
        summary, sealed = self.compared.as_json(), self.sealed
        first = (
            "pipeline", "version", "from", "to", "windows", "equal", "different", "rounding", "events", "unexplained",
        )  # fmt: skip
        return {
            "reconciliation": self.compared.number,
            **{name: summary[name] for name in first},
            "verdict": self.verdict.word,
            "failed": list(self.verdict.failed),
            "rows": summary["rows"],
            "sealed": sealed.sealed,
            "partial": sealed.partial,
            "held": sealed.held,
            "open": sealed.open,
            "restated_since": sealed.restated_since,
            "changed": sealed.changed,
            "revisions": {str(revision): count for revision, count in sealed.revisions.items()},
            **{name: summary[name] for name in ("open_windows", "conservation", "ingest", "cut")},
            "data_docs": self.compared.data_docs,
            "page": self.verdict.page,
        }


def reconcile(pipeline: str, since: str | None = None, until: str | None = None) -> Reconciled:
    """Compare, judge and seal a range, or all that is due."""
    data_docs.warm()
    number = compare(pipeline, since, until)
    judge(number)
    sealed = seal(number)
    compared = comparison.of(number)
    assert compared.verdict is not None  # as it was judged just now
    return Reconciled(compared=compared, verdict=compared.verdict, sealed=sealed)
