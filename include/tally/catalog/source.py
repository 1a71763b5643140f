"""A file of the catalogue as its top-level statements: which bind a name, which change it, where imports lead."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tally.catalog.calls import Calls
from tally.catalog.scope import FUNCTIONS, bound_as, changes, reads, shared_with, stored

WHOLE = "*"  # all that a module holds


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file's statements in order, and for each name the places of those that bind it or change it in place."""

    path: Path
    body: tuple[ast.stmt, ...]
    binders: dict[str, list[int]] = field(default_factory=dict)
    changers: dict[str, list[int]] = field(default_factory=dict)
    stars: list[int] = field(default_factory=list)

    def places(self, name: str, folder: Path) -> list[int]:
        """The statements, in the order of the file, that a name's meaning is made of."""
        stars = [at for at in self.stars if any(binds(s, name, folder) for s in self.star(at, folder))]
        return sorted({*self.binders.get(name, []), *self.changers.get(name, []), *stars})

    def star(self, at: int, folder: Path) -> list[Source]:
        node = self.body[at]
        assert isinstance(node, ast.ImportFrom)
        return [source(file) for file, _ in imported(node, WHOLE, self.path, folder)]

    def modules(self) -> dict[str, list[str]]:
        """The dotted names that imports at the top of the file give to each of its names."""
        found: dict[str, list[str]] = {}
        for node in (one for part in self.body for one in ast.walk(part)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    dotted = alias.name if alias.asname else alias.name.split(".")[0]
                    found.setdefault(bound_as(alias), []).append(dotted)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    dotted = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                    found.setdefault(bound_as(alias), []).append(dotted)
        return found


def source(path: Path) -> Source:
    """A file as it now is; a file that cannot be parsed raises SyntaxError."""
    return parsed(path, path.read_bytes())


@lru_cache(maxsize=4096)
def parsed(path: Path, text: bytes) -> Source:
    found = Source(path=path, body=tuple(statements(ast.parse(text, str(path)).body)))
    for at, node in enumerate(found.body):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == WHOLE:
            found.stars.append(at)
        for name in stored([node]) - {WHOLE}:
            found.binders.setdefault(name, []).append(at)
    for name, places in in_place(found).items():
        found.changers[name] = places
    return found


def statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Top-level statements, one for each imported name, without the engine's own decorator: the contract says that."""
    body = list(body)
    words = pipeline_words(body)
    for node in body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                one = ast.ImportFrom(module=node.module, names=[alias], level=node.level)
                yield ast.copy_location(one, node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield ast.copy_location(ast.Import(names=[alias]), node)
        else:
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [d for d in node.decorator_list if called(d) not in words]
            yield node


def pipeline_words(body: list[ast.stmt]) -> set[str]:
    """How a file says Tally's `pipeline`."""
    words: set[str] = set()
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module == "tally" and not node.level:
            words |= {bound_as(alias) for alias in node.names if alias.name == "pipeline"}
        elif isinstance(node, ast.Import):
            words |= {f"{bound_as(alias)}.pipeline" for alias in node.names if alias.name == "tally"}
    return words


def called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func) if isinstance(decorator, ast.Call) else ""


def in_place(found: Source) -> dict[str, list[int]]:
    """For each name the statements that change it in place, or may: under any name, through any function."""
    inner = [node for part in found.body for node in ast.walk(part) if isinstance(node, FUNCTIONS)]
    taken = {name for node in found.body if isinstance(node, ast.Import | ast.ImportFrom) for name in stored([node])}
    changing = frozenset(node.name for node in inner if touched(node, frozenset(), taken) or assigns_global(node))
    result: dict[str, set[int]] = {}
    calls = Calls(found.body, found.binders, found.modules())
    for at, node in enumerate(found.body):
        done = closure(found, own_changes(node, changing, taken), lambda other: follow(other, changing, taken))
        if calls.may_change(node):
            done |= {name for name in closure(found, reads(node), reads) if calls.is_mutable(name)}
        for name in done & found.binders.keys() - taken:
            result.setdefault(name, set()).add(at)
    return {name: sorted(places) for name, places in result.items()}


def closure(found: Source, names: set[str], more: Callable[[ast.stmt], set[str]]) -> set[str]:
    """Names, and those that the statements that bind them lead to."""
    todo, done = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in done:
            done.add(name)
            todo += [other for place in found.binders.get(name, []) for other in more(found.body[place])]
    return done


def follow(node: ast.stmt, changing: frozenset[str], taken: set[str]) -> set[str]:
    return touched(node, changing, taken) if isinstance(node, FUNCTIONS) else shared_with(node)


def own_changes(node: ast.AST, changing: frozenset[str], taken: set[str], *, deferred: bool = False) -> set[str]:
    """The names of its own file that a node changes; what is imported is changed by nobody who may."""
    return {change.name.id for change in changes(node, changing, deferred=deferred)} - taken


def touched(function: ast.AST, changing: frozenset[str], taken: set[str]) -> set[str]:
    """The names of the module that a function changes when it is called."""
    rebound = {name for n in ast.walk(function) if isinstance(n, ast.Global) for name in n.names}
    return rebound | own_changes(function, changing, taken, deferred=True)


def assigns_global(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function))


def binds(found: Source, name: str, folder: Path, seen: frozenset[Path] = frozenset()) -> bool:
    """Whether a module has a name, its own or one that it takes from another of the catalogue wholesale."""
    if name in found.binders or "__getattr__" in found.binders:
        return True
    if found.path in seen:
        return False
    others = (other for at in found.stars for other in found.star(at, folder))
    return any(binds(other, name, folder, seen | {found.path}) for other in others)


def imported(node: ast.AST, bound: str, path: Path, folder: Path) -> list[tuple[Path, str]]:
    """Where in the catalogue's own files the import statements in a node find a name; a module is `*`, all of it."""
    found: list[tuple[Path, str]] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            for alias in one.names:
                if bound_as(alias) == bound:
                    found += [(file, WHOLE) for file in module_files(folder, alias.name.split("."))]
        elif isinstance(one, ast.ImportFrom):
            base = path.parents[one.level - 1] if one.level else folder
            parts = one.module.split(".") if one.module else []
            for alias in one.names:
                if bound_as(alias) == bound:
                    file, below = module_file(base, parts), module_file(base, [*parts, alias.name])
                    found += [(below, WHOLE)] if below else [(file, alias.name)] if file else []
    return found


def module_files(base: Path, parts: list[str]) -> list[Path]:
    """The files of a module and of the packages in which it lies."""
    files = (module_file(base, parts[:depth]) for depth in range(1, len(parts) + 1))
    return [file for file in files if file]


def module_file(base: Path, parts: list[str]) -> Path | None:
    """The file of a module below a folder, if it is there."""
    place = base.joinpath(*parts)
    for file in (place.with_suffix(".py") if parts else place / "__init__.py", place / "__init__.py"):
        if file.is_file():
            return file
    return None
