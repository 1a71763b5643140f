"""Refuses, from the source alone, a pipeline that acts, reads the clock or writes."""

from __future__ import annotations

import ast
from pathlib import Path

from tally.catalog.fingerprint import names, top_level
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


def check_purity(pipeline: Pipeline) -> None:
    """Raise at the first line, in the function or in what it calls in its file, that is no pure transform."""
    tree, seen, todo = top_level(Path(pipeline.file)), set(), [pipeline.name]
    while todo:
        name = todo.pop()
        if name in seen or name not in tree:
            continue
        seen.add(name)
        node = tree[name]
        todo += names(node)
        if isinstance(node, ast.FunctionDef):
            for part in node.body:
                for inner in ast.walk(part):
                    judge(inner, pipeline)


def judge(node: ast.AST, pipeline: Pipeline) -> None:
    if isinstance(node, ast.Call):
        name = called(node.func)
        for verdict, words in (("acts", ACTS), ("reads the clock, chance or the environment", CLOCKS)):
            if name in words:
                refuse(pipeline, node, verdict, f"{name}()")
        if name == "open":
            refuse(pipeline, node, "writes", "open()")
        if name == "print":
            refuse(pipeline, node, "acts", "print()")
    if isinstance(node, ast.Attribute) and node.attr in WRITES | {"environ"}:
        verdict = "writes" if node.attr in WRITES else "reads the clock, chance or the environment"
        refuse(pipeline, node, verdict, f".{node.attr}")


def called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def refuse(pipeline: Pipeline, node: ast.AST, verdict: str, what: str) -> None:
    raise DefinitionError(
        f"the function {verdict}: {what}",
        pipeline=pipeline.name,
        field="function",
        cure=CURES[verdict],
        where=f"{pipeline.file}:{getattr(node, 'lineno', pipeline.line)}",
    )
