"""A pipeline's meaning as a short text: it changes when the meaning does, and with nothing else."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

from tally.catalog.duration import millis
from tally.catalog.spec import Pipeline

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
    found: dict[str, Any] = {}
    todo = [(file, name)]
    trees: dict[Path, dict[str, ast.stmt]] = {}
    while todo:
        path, wanted = todo.pop()
        label = f"{path.relative_to(folder) if path.is_relative_to(folder) else path.name}::{wanted}"
        if label in found:
            continue
        tree = trees.setdefault(path, top_level(path))
        node = tree.get(wanted)
        if node is None:
            continue
        found[label] = canonical(node)
        todo += [(path, used) for used in names(node) if used in tree]
        source = imported_file(node, folder)
        if source and not is_topic(source, original_name(node, wanted), trees):
            todo.append((source, original_name(node, wanted)))
    return found


def top_level(path: Path) -> dict[str, ast.stmt]:
    """Each name that a file binds at its top, with the statement that binds it."""
    bound: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = (
                    ast.ImportFrom(module=node.module, names=[alias], level=node.level)
                    if isinstance(node, ast.ImportFrom)
                    else ast.Import(names=[alias])
                )
                bound[alias.asname or alias.name.split(".")[0]] = one
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                bound |= {n.id: node for n in ast.walk(target) if isinstance(n, ast.Name)}
    return bound


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


def is_topic(file: Path, name: str, trees: dict[Path, dict[str, ast.stmt]]) -> bool:
    """Whether a name is bound to a topic(...): its contract is in the fingerprint already."""
    node = trees.setdefault(file, top_level(file)).get(name)
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "topic"


def imported_file(node: ast.AST, folder: Path) -> Path | None:
    """The catalogue's own file that an import statement reads, if it is one."""
    if not isinstance(node, ast.ImportFrom) or not node.module:
        return None
    path = folder.joinpath(*node.module.split(".")).with_suffix(".py")
    return path if path.is_file() else None


def original_name(node: ast.AST, bound: str) -> str:
    return next((a.name for a in getattr(node, "names", []) if (a.asname or a.name) == bound), bound)
