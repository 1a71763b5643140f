"""Which path a pipeline could take through a stream: with others that read its topic, or in a query of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tally.catalog.spec import Pipeline
from tally.lake.session import session
from tally.parts.function import Function
from tally.parts.rules import Refusal


@dataclass(frozen=True, kw_only=True)
class StreamPath:
    """Shared, with what of it only Spark's plans do; or own, with the reason and the author's file:line."""

    own: Refusal | None
    lacking: Sequence[str] = ()

    def __str__(self) -> str:
        if self.own:
            return f"own: {self.own} ({self.own.where})"
        return "shared: combined from parts" + "".join(f"; by Spark's plans: {one}" for one in self.lacking)

    def as_json(self) -> dict[str, object]:
        if self.own is None:
            return {"path": "shared"} | ({"by_spark": [*self.lacking]} if self.lacking else {})
        return {"path": "own", "reason": self.own.reason, "where": self.own.where}


def path_of(pipeline: Pipeline) -> StreamPath:
    """The path of a good definition, by its topics and its function's plan."""
    function = Function(session("tally-check", brief=True), pipeline)
    if isinstance(function.in_two, Refusal):
        return StreamPath(own=function.in_two)
    return StreamPath(own=None, lacking=function.here.lacking)
