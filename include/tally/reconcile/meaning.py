"""What follows from a definition alone, and takes Spark's analysis of its function to know: kept with its comparisons.

It holds for one version of a pipeline under one PySpark; any other is asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tally.catalog.fingerprint import ENGINE
from tally.catalog.spec import Pipeline
from tally.control import runs
from tally.kinds import kind_of
from tally.kinds.frames import called
from tally.kinds.kind import LateRule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tally.reconcile.rows.made_of import MadeOf

# Grows when the same function would be said to mean something else here.
ANALYSIS = 2


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What makes an event late, whether the function leaves events out, and what its floating measures are made of."""

    late_rule: LateRule
    filters: bool
    made_of: Mapping[str, MadeOf]

    def as_json(self) -> dict[str, Any]:
        made = {name: sorted(map(list, one)) for name, one in self.made_of.items()}
        return {"by": analysed_by(), "late_rule": self.late_rule, "filters": self.filters, "made_of": made}

    @classmethod
    def from_json(cls, said: Mapping[str, Any] | None) -> Meaning | None:
        """None where another analysis said it, or none did."""
        if not said or said["by"] != analysed_by():
            return None
        made = {name: frozenset((at, column) for at, column in one) for name, one in said["made_of"].items()}
        return cls(late_rule=said["late_rule"], filters=said["filters"], made_of=made)


def analysed_by() -> str:
    """The versions of what looked at the function."""
    return f"{ENGINE}.{ANALYSIS} {version('pyspark')}"


def kept(pipeline: Pipeline) -> Meaning | None:
    """What the newest comparison of this very version was made under."""
    said = runs.newest_summary(pipeline.name, pipeline.version)
    return Meaning.from_json((said or {}).get("meaning"))


def of(spark: SparkSession, pipeline: Pipeline) -> Meaning:
    """What Spark's analysis of the function says."""
    from tally.reconcile.replay.filtered import filters
    from tally.reconcile.rows.differences import floating, measures_of
    from tally.reconcile.rows.made_of import measured

    kind = kind_of(pipeline)
    out = kind.flattened(called(pipeline, kind.empty(spark)))
    names = list(floating(measures_of(out, pipeline)))
    return Meaning(
        late_rule=kind.late_rule(spark),
        filters=filters(spark, pipeline),
        made_of=dict(zip(names, measured(spark, pipeline, names), strict=True)),
    )
