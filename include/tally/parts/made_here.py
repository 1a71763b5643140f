"""What of a combined function is worked out in this process, and what only Spark's plans do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame

from tally.kinds.kind import Kind
from tally.parts.evaluate import Evaluation
from tally.parts.operations import Unknown
from tally.parts.split import Split
from tally.parts.taking import Taking

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class MadeHere:
    """The parts of events, and the rows of added parts, each where it is known here; `lacking` says what is not."""

    finished: DataFrame  # the function's rows of no parts: `none`
    none: DataFrame
    taking: Taking | None
    finishing: Evaluation | None
    lacking: tuple[str, ...]

    @classmethod
    def of(cls, kind: Kind, split: Split, events: DataFrame) -> MadeHere:
        """Of a function over such events."""
        none = events.sparkSession.createDataFrame([], split.schema)
        finished, lacking = kind.flattened(split.finished(none)), list[str]()

        def known(find: Callable[[], Found]) -> Found | None:
            try:
                return find()
            except Unknown as reason:
                lacking.append(str(reason))
                return None

        return cls(
            finished=finished,
            none=none,
            taking=known(lambda: Taking.of(kind, split, events)),
            finishing=known(lambda: Evaluation.of(finished, none)),
            lacking=tuple(lacking),
        )
