"""Which columns of its topics each measure of a pipeline is made of: only these say how large what it sums is."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from tally.catalog.spec import Pipeline
from tally.checks.grouping import Lineage
from tally.checks.plan import plan_of
from tally.kinds import kind_of

# (number of the topic, column); None: it is not known, and may be any.
MadeOf = frozenset[tuple[int, str]] | None


def measured(spark: SparkSession, pipeline: Pipeline, names: Sequence[str]) -> list[MadeOf]:
    """For each of these columns of a function's output."""
    if not names:
        return []
    given = kind_of(pipeline).empty(spark)
    plan = plan_of(pipeline.function(*given), given)
    lineage, columns = Lineage(plan, given), dict(plan.output)
    return [known(lineage, columns[name]) for name in names]


def known(lineage: Lineage, ident: int) -> MadeOf:
    made = lineage.made.get(ident)
    found = lineage.origins(made) if made is not None else {lineage.origin(ident)}
    return frozenset(one for one in found if one is not None) if None not in found else None
