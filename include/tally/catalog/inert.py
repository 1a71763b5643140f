"""A file of the catalogue changes nothing that stands in another file: whose meaning that is could not be told."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NoReturn

from tally.base.errors import DefinitionError
from tally.catalog.fingerprint import reached
from tally.catalog.scope import FUNCTIONS, at_once, changes, root
from tally.catalog.source import WHOLE, Source, imported, source, touched

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
            refuse_calls(node, found, file, folder)
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


def refuse_calls(node: ast.stmt, found: Source, file: Path, folder: Path) -> None:
    """Refuse a call, while the file loads, of a function that changes what its own file holds, and code from text."""
    roots = (root(part.func) for part in at_once(node) if isinstance(part, ast.Call))
    called = {one.id for one in roots if one is not None}
    for name in called:
        targets = [target for one in found.body for target in imported(one, name, found.path, folder)]
        for one, places in (entry for target in targets for entry in reached(*target, folder).values()):
            functions = (part for at in places for part in ast.walk(one.body[at]) if isinstance(part, FUNCTIONS))
            if any(touched(function, frozenset(), set(one.modules())) for function in functions):
                refuse(f"the file calls {name!r}, which changes what another file holds", found, node, file)
    if veil := called & {"exec", "eval", "globals", "vars", "locals", "__import__"} - found.binders.keys():
        refuse(f"the file calls {veil.pop()}(), and what that binds cannot be seen", found, node, file)


def refuse(message: str, found: Source, node: ast.stmt, file: Path) -> NoReturn:
    raise DefinitionError(
        message,
        pipeline=file.stem,
        field="file",
        cure="build it in one expression, in the file where it is kept",
        where=f"{found.path}:{node.lineno}",
    )
