"""Refuses, from the source alone, a pipeline that acts, writes, reads the clock, or cannot be seen through."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tally.base.errors import DefinitionError
from tally.catalog.fingerprint import reached
from tally.catalog.libraries import cure_for
from tally.catalog.scope import FUNCTIONS, changes, module_names, own_scope
from tally.catalog.source import Source
from tally.catalog.spec import Pipeline

ACTS = {
    "collect", "toPandas", "toArrow", "toLocalIterator", "show", "take", "tail", "isEmpty", "foreach",
    "foreachPartition", "foreachBatch", "cache", "persist", "unpersist", "checkpoint", "localCheckpoint",
    "awaitTermination", "print", "input", "breakpoint",
}  # fmt: skip
WRITES = {
    "write", "writeStream", "writeTo", "save", "saveAsTable", "insertInto", "createOrReplaceTempView",
    "createTempView", "createGlobalTempView", "open",
}  # fmt: skip
CLOCKS = {
    "current_timestamp", "current_date", "now", "localtimestamp", "curdate", "utcnow", "today", "time", "time_ns",
    "monotonic", "perf_counter", "rand", "randn", "random", "uuid", "uuid4", "uuid1", "shuffle", "getenv", "environ",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name", "read_text", "read_bytes",
}  # fmt: skip
# What these reach is not in the source: the fingerprint would stay while the meaning changes.
VEILS = {"eval", "exec", "compile", "globals", "locals", "vars", "dir", "__import__", "__builtins__", "__file__"}
# By where an object lies in memory, and for text by a number that each process draws anew.
DRAWN = {"hash", "id"}
INNER = {
    "__dict__", "__globals__", "__code__", "__defaults__", "__kwdefaults__", "__closure__", "__doc__",
    "__annotations__", "__builtins__", "__subclasses__", "__getattribute__", "__loader__", "__spec__",
    "_jdf", "_jc", "_jvm", "_sc", "rdd",
}  # fmt: skip
# What a DataFrame says of itself that differs between the layers.
OF_A_LAYER = {"isStreaming", "isLocal", "inputFiles", "storageLevel", "explain", "semanticHash", "sameSemantics"}
# Of a DataFrame's session: what makes rows of nothing but the function's own constants.
OF_A_SESSION = {"createDataFrame", "range"}
# Spark puts the clock in the place of these words when it reads the text.
CLOCK_TEXT = re.compile(
    r"\b(?:timestamp|date|timestamp_ntz|timestamp_ltz)\s*['\"]\s*(now|today|tomorrow|yesterday)\b", re.I
)
AT_ANY_TIME = "use the event time; both layers must give the same rows at any time"
CURES = {
    "acts": "return a DataFrame and let the engine run it",
    "writes": "return a DataFrame; the engine writes it",
    "reads the clock, chance or the environment": AT_ANY_TIME,
    "cannot be seen through": "write it out, in this file or in one beside topics.py: its source is its version",
    "asks which layer it runs in": "write what both layers do; the engine sees to the rest",
    "changes what stands outside of it": "build it in one expression at the top of the file",
}
CHANCE, VEILED = "reads the clock, chance or the environment", "cannot be seen through"


class Judge:
    """What is refused in one file's statements, at the author's line."""

    def __init__(self, pipeline: Pipeline, found: Source, folder: Path) -> None:
        self.pipeline, self.file, self.folder = pipeline, found.path, folder
        self.own = set(found.binders)
        self.modules = found.modules()

    def statement(self, node: ast.stmt) -> None:
        """Raise at the first part of a statement that is no part of a pure transform."""
        for below in ast.walk(node):
            if isinstance(below, FUNCTIONS):
                self.function(below)
            self.part(below)
        above = {id(part.value): part for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        for name in module_names(node):
            self.name(name, [*dotted(name, above)])
        for part in ast.walk(node):
            if isinstance(part, ast.Import | ast.ImportFrom):
                self.taken(part)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for inner in (part for one in node.body for part in own_scope(one)):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                self.refuse(inner, VEILED, "an import inside it", "import it at the top of the file")
            if isinstance(inner, ast.Global):
                self.refuse(inner, "changes what stands outside of it", f"global {inner.names[0]}")
        for change in changes(node, deferred=True):
            name = change.name
            if name.id in self.own and (name.id not in self.modules or change.how == "set"):
                self.refuse(name, "changes what stands outside of it", name.id)

    def part(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self.call(node)
        if isinstance(node, ast.Attribute):
            self.attribute(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (word := CLOCK_TEXT.search(node.value)):
            self.refuse(node, CHANCE, word[0])
        for many in unordered(node):
            self.refuse(many, CHANCE, "the order of a set", "sort it: sorted(...)")

    def call(self, node: ast.Call) -> None:
        name = called(node)
        if name in ACTS:
            self.refuse(node, "acts", f"{name}()")
        if name in CLOCKS:
            self.refuse(node, CHANCE, f"{name}()")
        if name == "open":
            self.refuse(node, "writes", "open()")
        at = {"getattr": 1, "attrgetter": 0, "methodcaller": 0}.get(name)
        if at is not None and not all(isinstance(arg, ast.Constant) for arg in node.args[at : at + 1] or [node]):
            self.refuse(node, VEILED, f"{name}() with a name that is worked out", "write the name as text")

    def attribute(self, node: ast.Attribute) -> None:
        if node.attr in WRITES | {"environ"}:
            self.refuse(node, "writes" if node.attr in WRITES else CHANCE, f".{node.attr}")
        if node.attr in OF_A_LAYER:
            self.refuse(node, "asks which layer it runs in", f".{node.attr}")
        if node.attr in INNER:
            self.refuse(node, VEILED, f".{node.attr}")
        below = node.value
        if isinstance(below, ast.Attribute) and below.attr == "sparkSession" and node.attr not in OF_A_SESSION:
            self.refuse(node, CHANCE, f".sparkSession.{node.attr}", "read the topics; constants by createDataFrame")

    def name(self, node: ast.Name, parts: list[str]) -> None:
        """Judge a name of the module by what it is: a library's, or one of Python's own."""
        if node.id not in self.own:
            if node.id in VEILS:
                self.refuse(node, VEILED, f"{node.id}()")
            if node.id in DRAWN:
                self.refuse(node, CHANCE, f"{node.id}()")
            if node.id in {"setattr", "delattr"} and hasattr(builtins, node.id):
                self.refuse(node, "changes what stands outside of it", f"{node.id}()")
        for module in self.modules.get(node.id, self.taken_wholesale(node.id)):
            if not module.startswith("."):
                self.library(node, ".".join([module, *parts[1:]]))

    def taken_wholesale(self, name: str) -> list[str]:
        """The dotted names that one may have where it is bound nowhere, and libraries were imported with a star."""
        if name in self.own or hasattr(builtins, name):
            return []
        return [f"{module.removesuffix('.*')}.{name}" for module in self.modules.get("*", [])]

    def taken(self, node: ast.Import | ast.ImportFrom) -> None:
        """Judge an import statement that the function reaches, where it leads out of the catalogue."""
        if isinstance(node, ast.ImportFrom) and node.level:
            return
        for alias in node.names:
            full = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            self.library(node, full)

    def library(self, node: ast.AST, full: str) -> None:
        first = full.split(".")[0]
        mine = any((self.folder / f"{first}{end}").exists() for end in (".py", ""))
        if not mine and (cure := cure_for(full)):
            self.refuse(node, VEILED if cure.hidden else CHANCE, full, cure.text)

    def refuse(self, node: ast.AST, verdict: str, what: str, cure: str = "") -> NoReturn:
        raise DefinitionError(
            f"the function {verdict}: {what}",
            pipeline=self.pipeline.name,
            field="function",
            cure=cure or CURES[verdict],
            where=f"{self.file}:{getattr(node, 'lineno', self.pipeline.line)}",
        )


def check_purity(pipeline: Pipeline, folder: Path) -> None:
    """Raise at the first line, in the function or in what it reaches in the catalogue, that is no pure transform."""
    found = reached(Path(pipeline.file), pipeline.name, folder)
    if not found[(Path(pipeline.file), pipeline.name)][1]:
        raise DefinitionError(
            f"nothing at the top of the file binds {pipeline.name!r}",
            pipeline=pipeline.name,
            field="function",
            where=pipeline.where,
            cure=f"write def {pipeline.name}(...) there",
        )
    for one, places in found.values():
        judge = Judge(pipeline, one, folder)
        for at in places:
            judge.statement(one.body[at])


def dotted(name: ast.Name, above: dict[int, ast.Attribute]) -> Iterator[str]:
    """A name and the attributes that are asked of it, one of the other."""
    yield name.id
    node: ast.AST | None = name
    while node := above.get(id(node)):
        yield node.attr


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def unordered(node: ast.AST) -> list[ast.expr]:
    """The sets that a node goes through in their own order, which is another one in each process."""
    many: list[ast.expr] = []
    if isinstance(node, ast.For | ast.comprehension):
        many.append(node.iter)
    elif isinstance(node, ast.Starred):
        many.append(node.value)
    elif isinstance(node, ast.Call) and called(node) in {"list", "tuple", "enumerate", "reduce", "join"}:
        many += node.args
    makes = {"set", "frozenset"}
    return [
        one
        for one in many
        if isinstance(one, ast.Set | ast.SetComp) or (isinstance(one, ast.Call) and called(one) in makes)
    ]
