"""A file of the catalogue changes nothing that stands in another file: whose meaning that is could not be told."""

from __future__ import annotations

import ast
from pathlib import Path

from tally.catalog.scope import changed, root
from tally.catalog.source import Source, imported, source
from tally.errors import DefinitionError

# What is set for a process and no number comes from.
SURROUNDINGS = {"sys", "os", "logging", "warnings"}


def check_inert(file: Path, folder: Path) -> None:
    """Refuse, before it is run, a file that changes what it imports, or imports one of the catalogue that does."""
    todo, seen = [file], set[Path]()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            found = source(path)
        except SyntaxError:
            continue  # is told when the file is run
        modules = found.modules()
        for node in found.body:
            refuse_foreign(node, found, modules, file, folder)
            todo += [target for name in modules for target, _ in imported(node, name, path, folder)]
        todo += [other.path for at in found.stars for other in found.star(at, folder)]


def refuse_foreign(node: ast.stmt, found: Source, modules: dict[str, list[str]], file: Path, folder: Path) -> None:
    for name in changed(node):
        taken = [module.split(".")[0] for module in modules.get(name.id, [])]
        if not taken or set(taken) <= SURROUNDINGS:
            continue
        mine = any(imported(one, name.id, found.path, folder) for one in found.body)
        if mine or not for_its_effect(node, name):
            raise DefinitionError(
                f"the file changes {name.id!r}, which it imports",
                pipeline=file.stem,
                field="file",
                cure="change it where it is made, or make a new one: NEW = {**OLD, ...}",
                where=f"{found.path}:{name.lineno}",
            )


def for_its_effect(node: ast.stmt, name: ast.Name) -> bool:
    """Whether a library is only called, as in `decimal.getcontext()`, and nothing of it is replaced."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    assigned = [
        part for part in ast.walk(node)
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load)
    ]  # fmt: skip
    sets = any(getattr(call.func, "id", "") in {"setattr", "delattr"} for call in calls)
    return not sets and not any(root(part) is name for part in assigned)
