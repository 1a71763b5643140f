"""A pipeline's parts of events, made in this process or in one of Spark's workers, without a plan of Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from tally.kinds.clock_windows import ClockWindows
from tally.kinds.kind import Kind
from tally.parts.aggregates import bounded, grouped, roomy
from tally.parts.buffers import Add
from tally.parts.evaluate import Evaluation
from tally.parts.merge import arrays
from tally.parts.operations import Unknown
from tally.parts.split import Split

HOW = {Add.SUM: "sum", Add.MIN: "min", Add.MAX: "max"}


@dataclass(frozen=True, kw_only=True)
class Taking:
    """What Spark's plan of the parts gives of these events, to the last digits of floating sums; plain data."""

    windows: ClockWindows
    evaluation: Evaluation
    groups: Sequence[str]
    window: str  # which of the groups is the pipeline's
    how: Mapping[str, str]  # each buffer's way to add up, as Arrow calls it

    @classmethod
    def of(cls, kind: Kind, split: Split, events: DataFrame) -> Taking:
        """The same as `split.parts` of such events; Unknown where only Spark can do it."""
        windows, how = kind.clock_windows, {one.name: HOW[one.add] for one in split.buffers if one.add in HOW}
        if windows is None:
            raise Unknown("windows that no clock gives")
        if len(how) < len(split.buffers):
            raise Unknown("an aggregate whose parts are not added up value by value")
        given = events.sparkSession.createDataFrame([], kind.bounded([events])[0].schema)
        evaluation = Evaluation.of(split.parts(given), given)
        return cls(windows=windows, evaluation=evaluation, groups=split.groups, window=split.window, how=how)

    @property
    def columns(self) -> list[str]:
        """Of the events, those that it looks at."""
        return [name for name in dict.fromkeys([*self.evaluation.leaf, self.windows.time]) if name != "window"]

    def over(self, events: pa.Table) -> pa.Table | None:
        """The parts of these events, one a group; None where that is Spark's to say."""
        used = events.select(self.columns)
        try:
            if not self.in_panes:
                return self.evaluation.over(self.windows.over(used))
            newest = self.evaluation.over(self.windows.over_newest(used))
            return None if newest is None else self.added_up(self.windows.spread(newest, self.window))
        except ArithmeticError:
            return None

    @property
    def in_panes(self) -> bool:
        """Whether what a step of overlapping windows comes to is made once, and added up for each of them."""
        return self.windows.in_panes and self.evaluation.window_groups_alone

    def together(self, parts: Sequence[pa.Table]) -> pa.Table | None:
        """Parts of several pieces as one, a row a group; None where that is Spark's to say."""
        if len(parts) == 1:
            return parts[0]
        return self.added_up(pa.concat_tables(parts))

    def added_up(self, parts: pa.Table) -> pa.Table | None:
        whole = arrays(parts)
        try:
            totals = [(how, addable(whole[name]) if how == "sum" else whole[name]) for name, how in self.how.items()]
            keys, values = grouped([whole[name] for name in self.groups], totals)
            return pa.table([*keys, *values], names=[*self.groups, *self.how]).select(list(whole)).cast(parts.schema)
        except (pa.ArrowException, ArithmeticError):
            return None


def addable(values: pa.Array) -> pa.Array:
    """Values whose sum does not outgrow its type; an error where it may."""
    if pa.types.is_integer(values.type):
        return bounded(values)
    return roomy(values) if pa.types.is_decimal(values.type) else values
