"""A pipeline's meaning as a short text: it changes when the meaning does, and with nothing else."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from tally.catalog.duration import millis
from tally.catalog.spec import Pipeline

WHOLE = "*"  # all that a module holds
# Grows when the engine itself would give the same definition another meaning.
ENGINE = 1


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
    return {
        "reads": [
            {
                "name": topic.name,
                "schema": [[f.name, f.type, f.required] for f in topic.schema],
                "event_time": topic.event_time,
                "lateness": millis(topic.lateness),
                "unique": topic.unique,
            }
            for topic in pipeline.reads
        ],
        "window": [pipeline.window.kind, millis(pipeline.window.size), millis(pipeline.window.slide)],
        "key": list(pipeline.key),
        "reach": None if pipeline.reach is None else millis(pipeline.reach),
    }


def code(file: Path, name: str, folder: Path) -> dict[str, Any]:
    """The canonical syntax of a top-level name and of every name of the catalogue that it reaches."""
    return {
        f"{path.relative_to(folder) if path.is_relative_to(folder) else path.name}::{wanted}": canonical(nodes)
        for (path, wanted), nodes in reached(file, name, folder).items()
    }


def reached(file: Path, name: str, folder: Path) -> dict[tuple[Path, str], list[ast.stmt]]:
    """The statements that bind a top-level name and every name that it reaches, in any file of the catalogue."""
    found: dict[tuple[Path, str], list[ast.stmt]] = {}
    todo = [(file, name)]
    while todo:
        path, wanted = todo.pop()
        tree = top_level(path)
        if wanted == WHOLE:
            todo += [(path, bound) for bound in tree if bound != WHOLE]
        nodes = tree.get(wanted, [])
        if (path, wanted) in found or not nodes:
            continue
        found[(path, wanted)] = nodes
        stars = [source for node in tree.get(WHOLE, []) for source, _ in imported(node, WHOLE, path, folder)]
        for node in nodes:
            used = names(node)
            todo += [(path, one) for one in used if one in tree]
            todo += [(source, one) for source in stars for one in used - tree.keys()]
            todo += [one for one in imported(node, wanted, path, folder) if not is_topic(*one)]
    return found


@cache
def parsed(path: Path, changed: int) -> ast.Module:
    return ast.parse(path.read_text())


def top_level(path: Path) -> dict[str, list[ast.stmt]]:
    """Each name that a file binds at its top, with the statements that bind it; `*` for what it takes wholesale."""
    bound: dict[str, list[ast.stmt]] = {}
    for node in parsed(path, path.stat().st_mtime_ns).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = (
                    ast.ImportFrom(module=node.module, names=[alias], level=node.level)
                    if isinstance(node, ast.ImportFrom)
                    else ast.Import(names=[alias])
                )
                bound.setdefault(alias.asname or alias.name.split(".")[0], []).append(one)
        else:  # an assignment, or one below an `if`, a `try`, a loop: all of the statement is what binds the name
            for name in sorted(bound_by(node)):
                bound.setdefault(name, []).append(node)
    return bound


def bound_by(node: ast.stmt) -> set[str]:
    """The names that a statement binds, at any depth of it."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {n.name for n in ast.walk(node) if isinstance(n, kinds)}
    found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    aliases = [a for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names]
    return found | {a.asname or a.name.split(".")[0] for a in aliases}


def names(node: ast.AST) -> set[str]:
    """Every name that the meaning of a node may depend on; the engine's own decorator is the contract's."""
    parts = [*node.args.defaults, *node.body] if isinstance(node, ast.FunctionDef) else [node]
    if isinstance(node, ast.FunctionDef):
        parts += [d for d in node.decorator_list if not is_pipeline(d)]
    return {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def canonical(node: Any) -> Any:
    """A node as plain data without places, comments, docstrings, annotations or empty fields."""
    if isinstance(node, ast.AST):
        fields = dict(ast.iter_fields(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            fields["body"] = fields["body"][1:] if ast.get_docstring(node) is not None else fields["body"]
            fields["decorator_list"] = [d for d in node.decorator_list if not is_pipeline(d)]
            fields.pop("returns", None)
        if isinstance(node, ast.arg):
            fields.pop("annotation", None)
        kept = {k: canonical(v) for k, v in fields.items() if k not in ("ctx", "kind", "type_comment", "type_params")}
        return [type(node).__name__, {k: v for k, v in kept.items() if v not in (None, [])}]
    if isinstance(node, list):
        return [canonical(item) for item in node]
    return node if isinstance(node, str | int | bool | None) else repr(node)


def is_pipeline(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (isinstance(target, ast.Name) and target.id == "pipeline") or (
        isinstance(target, ast.Attribute) and target.attr == "pipeline"
    )


def is_topic(file: Path, name: str) -> bool:
    """Whether a name is bound to a topic(...): its contract is in the fingerprint already."""
    nodes = top_level(file).get(name, [])
    value = getattr(nodes[0], "value", None) if nodes else None
    return isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "topic"


def imported(node: ast.AST, bound: str, path: Path, folder: Path) -> list[tuple[Path, str]]:
    """Where in the catalogue's own files the import statements in a node find a name; a module is `*`, all of it."""
    found: list[tuple[Path, str]] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            for alias in one.names:
                file = module_file(folder, alias.name.split("."))
                if file and (alias.asname or alias.name.split(".")[0]) == bound:
                    found.append((file, WHOLE))
        elif isinstance(one, ast.ImportFrom):
            base = path.parents[one.level - 1] if one.level else folder
            parts = one.module.split(".") if one.module else []
            for alias in one.names:
                if (alias.asname or alias.name) == bound:
                    file, below = module_file(base, parts), module_file(base, [*parts, alias.name])
                    found += [(below, WHOLE)] if below else [(file, alias.name)] if file else []
    return found


def module_file(base: Path, parts: list[str]) -> Path | None:
    """The file of a module below a folder, if it is there."""
    place = base.joinpath(*parts)
    for file in (place.with_suffix(".py") if parts else place / "__init__.py", place / "__init__.py"):
        if file.is_file():
            return file
    return None
