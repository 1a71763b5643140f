"""A pipeline's meaning as a short text: it changes when the meaning does, and with nothing else."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tally.base.duration import millis, parse_duration
from tally.base.settings import settings
from tally.catalog.scope import FUNCTIONS, reads
from tally.catalog.source import WHOLE, Source, imported, source
from tally.catalog.spec import Pipeline

# Grows when the engine itself would give the same definition another meaning.
ENGINE = 3
# Settings of Spark under which an expression gives something else.
MEANT = tuple(
    f"spark.sql.{name}"
    for name in ("session.", "ansi.", "legacy.", "decimalOperations.", "mapKeyDedupPolicy", "storeAssignmentPolicy",
                 "caseSensitive", "jsonGenerator.", "timestampType", "collation.", "groupBy", "parser.", "variable.")
)  # fmt: skip
# Of a node: what changes no number.
SILENT = ("ctx", "kind", "type_comment", "type_params", "simple")


def fingerprint(pipeline: Pipeline, folder: Path) -> str:
    """ "v" and 12 hex digits over the contract and the code that the function reaches inside the catalogue."""
    meaning = {
        "engine": ENGINE,
        "contract": contract(pipeline),
        "code": code(Path(pipeline.file), pipeline.name, folder),
    }
    return "v" + hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:12]


def contract(pipeline: Pipeline) -> dict[str, Any]:
    """What the declaration says, as plain data; partitions and owner mean nothing for the numbers."""
    skew = millis(parse_duration(settings().skew, field="TALLY_SKEW"))  # by it the decode refuses records
    return {
        "reads": [
            {
                "name": topic.name,
                "schema": [[f.name, f.type, f.required] for f in topic.schema],
                "event_time": topic.event_time,
                "lateness": millis(topic.lateness),
                "unique": topic.unique,
                "skew": skew,
            }
            for topic in pipeline.reads
        ],
        "window": [pipeline.window.word, millis(pipeline.window.size), millis(pipeline.window.step)],
        "key": list(pipeline.key),
        "reach": None if pipeline.reach is None else millis(pipeline.reach),
        **surroundings(),
    }


def surroundings() -> dict[str, Any]:
    """What of Spark's configuration decides what expressions mean, where it is set; speed and places are no meaning."""
    told = {name: value for name, value in settings().more_conf.items() if name.startswith(MEANT)}
    return {"conf": told} if told else {}


def code(file: Path, name: str, folder: Path) -> dict[str, Any]:
    """The canonical syntax of a top-level name and of every name of the catalogue that it reaches."""
    found = reached(file, name, folder)
    hinted = passed(one.body[at] for one, places in found.values() for at in places)
    return {
        f"{path.relative_to(folder) if path.is_relative_to(folder) else path.name}::{wanted}": [
            [canonical(one.body[at], hinted), before(one, at, folder)] for at in places
        ]
        for (path, wanted), (one, places) in found.items()
        if places
    }


Reached = dict[tuple[Path, str], tuple[Source, list[int]]]


def reached(file: Path, name: str, folder: Path) -> Reached:
    """The statements that bind or change a top-level name and every name that it reaches, in any of the files."""
    found: Reached = {}
    todo = [(file, name)]
    while todo:
        path, wanted = todo.pop()
        if (path, wanted) in found:
            continue
        one = source(path)
        places = [] if wanted == WHOLE else one.places(wanted, folder)
        found[(path, wanted)] = (one, places)
        if wanted == WHOLE or (not places and "__getattr__" in one.binders):
            todo += [(path, bound) for bound in one.binders]
            todo += [(other.path, WHOLE) for at in one.stars for other in one.star(at, folder)]
        for at in places:
            todo += [(path, used) for used in reads(one.body[at])]
            todo += imported(one.body[at], wanted, path, folder)
            if at in one.stars:
                todo += [(other.path, wanted) for other in one.star(at, folder)]
    return found


def before(one: Source, at: int, folder: Path) -> dict[str, int]:
    """How many statements had bound or changed each name that a statement needs at once; one alone says nothing."""
    node = one.body[at]
    todo, found = list(reads(node, deferred=not isinstance(node, FUNCTIONS))), dict[str, int]()
    while todo:
        name = todo.pop()
        places = one.places(name, folder)
        if name in found or not places:
            continue
        found[name] = sum(place < at for place in places) if len(places) > 1 else 0
        todo += [used for place in places for used in reads(one.body[place])]
    return {name: count for name, count in found.items() if count}


def passed(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The names that are handed to a call: of a function that is, Spark may read the type hints."""
    calls = [call for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call)]
    given = [part for call in calls for part in (*call.args, *(word.value for word in call.keywords))]
    return frozenset(part.id for part in given if isinstance(part, ast.Name))


def canonical(node: Any, hinted: frozenset[str] = frozenset(), *, hints: bool = False) -> Any:
    """A node as plain data without places, comments, docstrings or empty fields, and without hints that say nothing."""
    if isinstance(node, list):
        return [canonical(item, hinted, hints=hints) for item in node]
    if isinstance(node, ast.Constant):
        return ["Constant", type(node.value).__name__, repr(node.value)]
    if not isinstance(node, ast.AST):
        return node if isinstance(node, str | int | None) else repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        fields["body"] = fields["body"][1:] if ast.get_docstring(node) is not None else fields["body"]
    if isinstance(node, FUNCTIONS):
        hints = bool(node.decorator_list) or node.name in hinted
        if not hints:
            fields.pop("returns")
    if isinstance(node, ast.arg) and not hints:
        fields.pop("annotation")
    if isinstance(node, ast.ClassDef):
        hints = True  # what a dataclass is made of
    if isinstance(node, ast.AnnAssign) and not hints:
        fields.pop("annotation")
        fields["targets"] = [fields.pop("target")]
    kept = {k: canonical(v, hinted, hints=hints) for k, v in fields.items() if k not in SILENT}
    kind = "Assign" if isinstance(node, ast.AnnAssign) and not hints else type(node).__name__
    return [kind, {k: v for k, v in kept.items() if v is not None and v != []}]
