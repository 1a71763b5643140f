"""Refuses, from the source alone, a pipeline that acts, reads the clock or writes."""

from __future__ import annotations

import ast
from pathlib import Path

from tally.catalog.fingerprint import reached
from tally.catalog.spec import Pipeline
from tally.errors import DefinitionError

ACTS = {
    "collect", "toPandas", "toArrow", "toLocalIterator", "show", "take", "tail", "isEmpty", "foreach",
    "foreachPartition", "foreachBatch", "cache", "persist", "unpersist", "checkpoint", "localCheckpoint",
    "awaitTermination",
}  # fmt: skip
WRITES = {
    "write", "writeStream", "writeTo", "save", "saveAsTable", "insertInto", "createOrReplaceTempView",
    "createTempView", "createGlobalTempView", "open",
}  # fmt: skip
CLOCKS = {
    "current_timestamp", "current_date", "now", "localtimestamp", "curdate", "utcnow", "today", "time", "time_ns",
    "monotonic", "perf_counter", "rand", "randn", "random", "uuid", "uuid4", "uuid1", "shuffle", "getenv", "environ",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name",
}  # fmt: skip
CURES = {
    "acts": "return a DataFrame and let the engine run it",
    "writes": "return a DataFrame; the engine writes it",
    "reads the clock, chance or the environment": "use the event time; both layers must give the same rows at any time",
}


def check_purity(pipeline: Pipeline, folder: Path) -> None:
    """Raise at the first line, in the function or in what it calls in the catalogue, that is no pure transform."""
    for (file, _), nodes in reached(Path(pipeline.file), pipeline.name, folder).items():
        functions = [inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)]
        for part in (part for function in functions for part in function.body):
            for inner in ast.walk(part):
                judge(inner, file, pipeline)


def judge(node: ast.AST, file: Path, pipeline: Pipeline) -> None:
    if isinstance(node, ast.Call):
        name = called(node.func)
        for verdict, words in (("acts", ACTS), ("reads the clock, chance or the environment", CLOCKS)):
            if name in words:
                refuse(pipeline, file, node, verdict, f"{name}()")
        if name == "open":
            refuse(pipeline, file, node, "writes", "open()")
        if name == "print":
            refuse(pipeline, file, node, "acts", "print()")
    if isinstance(node, ast.Attribute) and node.attr in WRITES | {"environ"}:
        verdict = "writes" if node.attr in WRITES else "reads the clock, chance or the environment"
        refuse(pipeline, file, node, verdict, f".{node.attr}")


def called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def refuse(pipeline: Pipeline, file: Path, node: ast.AST, verdict: str, what: str) -> None:
    raise DefinitionError(
        f"the function {verdict}: {what}",
        pipeline=pipeline.name,
        field="function",
        cure=CURES[verdict],
        where=f"{file}:{getattr(node, 'lineno', pipeline.line)}",
    )
