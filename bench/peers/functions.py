"""Many different functions over one topic of sales, each in PySpark for Tally and in SQL for whoever speaks it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOPIC = "sales"
LATENESS = 30_000
TOPICS = """
from tally import topic

sales = topic(
    "sales", schema="shop INT, city INT, amount DOUBLE, pieces INT, at TIMESTAMP",
    event_time="at", lateness="30 seconds", partitions=4,
)
"""
PIPELINE = '''
from pyspark.sql import functions as F
from topics import sales

from tally import hopping, pipeline, tumbling


@pipeline(reads=sales, window={window}, key="{key}")
def {name}(sales):
    """One of many."""
    return sales.where(F.col("pieces") > {least}).groupBy("window", "{key}").agg({measures})
'''


@dataclass(frozen=True, kw_only=True)
class Window:
    """Windows of a size that begin each `step`, both in milliseconds, and how Tally declares them."""

    size: int
    step: int
    declared: str


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One column of a result."""

    name: str
    spark: str
    sql: str
    whole: bool = True


WINDOWS = (
    Window(size=10_000, step=10_000, declared='tumbling("10 seconds")'),
    Window(size=60_000, step=60_000, declared='tumbling("1 minute")'),
    Window(size=60_000, step=20_000, declared='hopping("1 minute", by="20 seconds")'),
    Window(size=30_000, step=30_000, declared='tumbling("30 seconds")'),
)
SALES = Measure(name="sales", spark='F.count("*")', sql="COUNT(*)")
TAKINGS = Measure(name="takings", spark='F.sum("amount")', sql="SUM(amount)", whole=False)
MEASURES = (
    (SALES, TAKINGS),
    (
        SALES,
        Measure(name="largest", spark='F.max("amount")', sql="MAX(amount)", whole=False),
        Measure(name="fewest", spark='F.min("pieces")', sql="MIN(pieces)"),
    ),
    (
        Measure(name="pieces", spark='F.sum("pieces")', sql="SUM(pieces)"),
        Measure(name="mean", spark='F.avg("amount")', sql="AVG(amount)", whole=False),
    ),
    (
        Measure(name="dear", spark='F.count_if(F.col("amount") > 40)', sql="COUNT(*) FILTER (WHERE amount > 40)"),
        TAKINGS,
        Measure(name="most", spark='F.max("pieces")', sql="MAX(pieces)"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Function:
    """One pipeline of many: windows, a key, a filter and measures."""

    name: str
    window: Window
    key: str
    least: int
    measures: tuple[Measure, ...]

    def pipeline(self) -> str:
        """Its definition for Tally."""
        measures = ", ".join(f'{one.spark}.alias("{one.name}")' for one in self.measures)
        return PIPELINE.format(
            window=self.window.declared, key=self.key, name=self.name, least=self.least, measures=measures
        )


def functions(count: int) -> list[Function]:
    """So many functions of which no two are the same."""
    return [
        Function(
            name=f"many_{at:03d}",
            window=WINDOWS[at % 4],
            key=("shop", "city")[at // 4 % 2],
            least=at // 8,
            measures=MEASURES[(at + at // 4) % 4],
        )
        for at in range(count)
    ]


def write_catalogue(folder: Path, chosen: list[Function]) -> None:
    """A catalogue of these functions and their topic."""
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "topics.py").write_text(TOPICS)
    for function in chosen:
        (folder / "pipelines" / f"{function.name}.py").write_text(function.pipeline())
