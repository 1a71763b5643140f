"""Which path a pipeline could take through a stream: with others that read its topic, or in a query of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tally.catalog.spec import Pipeline
from tally.lake.session import session
from tally.parts.combine import combinable
from tally.parts.rules import Refusal


@dataclass(frozen=True, kw_only=True)
class StreamPath:
    """Shared, or own with the reason and the author's file:line that it is found at."""

    own: Refusal | None

    def __str__(self) -> str:
        return f"own: {self.own} ({self.own.where})" if self.own else "shared: combined from parts"

    def as_json(self) -> dict[str, object]:
        if self.own is None:
            return {"path": "shared"}
        return {"path": "own", "reason": self.own.reason, "where": self.own.where}


def path_of(pipeline: Pipeline) -> StreamPath:
    """The path of a good definition, by its topics and its function's plan."""
    found = combinable(pipeline, session("tally-check", brief=True))
    return StreamPath(own=found if isinstance(found, Refusal) else None)
