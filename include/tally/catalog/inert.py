"""A file of the catalogue changes nothing that stands in another file: whose meaning that is could not be told."""

from __future__ import annotations

import ast
from pathlib import Path

from tally.catalog.scope import changes
from tally.catalog.source import WHOLE, Source, imported, source
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
    for change in changes(node):
        name = change.name
        if {module.split(".")[0] for module in modules.get(name.id, [])} <= SURROUNDINGS:
            continue
        mine = [target for one in found.body for target in imported(one, name.id, found.path, folder)]
        for_its_effect = change.how == "call" and isinstance(node, ast.Expr)
        object_of_mine = change.how == "method" and any(bound != WHOLE for _, bound in mine)
        if change.how == "set" or (mine and (for_its_effect or object_of_mine)):
            raise DefinitionError(
                f"the file changes {name.id!r}, which it imports",
                pipeline=file.stem,
                field="file",
                cure="change it where it is made, or make a new one: NEW = {**OLD, ...}",
                where=f"{found.path}:{name.lineno}",
            )
