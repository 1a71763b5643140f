"""Every cause that a difference between the layers can have, and what it means in plain words. No Spark."""

from __future__ import annotations

UNEXPLAINED = "unexplained"
# A row that several causes touch bears them all, joined by this.
JOINED = "+"

MEANING = {
    "late": "came after the stream had closed its window",
    "duplicate": "the layers dropped different copies of one id",
    "skipped": "the stream never read its offset",
    "in_flight": "archived, and not yet read by the stream",
    "applied_twice": "the stream read its offset in two micro-batches",
    "split": "accepted beside a session that was already over",
    "rounding": "floating-point sums taken in another order",
    "replay": "the replay of the micro-batches gives the stream's row",
    UNEXPLAINED: "nothing that is known explains it",
}


def meaning(cause: str) -> str:
    """What a cause, or several joined ones, mean."""
    return "; ".join(MEANING.get(part, "not a known cause") for part in cause.split(JOINED))
