"""Which names of its module a piece of Python reads, binds and changes in place; names of inner scopes are none."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Methods of Python's own containers that change them.
CHANGERS = {
    "append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft", "popitem", "clear", "update",
    "setdefault", "add", "discard", "sort", "reverse", "rotate", "move_to_end", "subtract", "intersection_update",
    "difference_update", "symmetric_difference_update", "register",
    "__setitem__", "__setattr__", "__delitem__", "__delattr__",
}  # fmt: skip
# Functions that change what they are given.
SETTERS = {"setattr", "delattr", "next", "heappush", "heappop", "heapify", "shuffle", "insort", "setitem", "delitem"}


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that nodes bind in the scope in which they stand."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            found |= stored(evaluated(node)) | ({node.name} if not isinstance(node, ast.Lambda) else set())
        elif isinstance(node, COMPREHENSIONS):
            walrus = (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
            found.update(walrus)
        else:
            found |= named(node) | stored(ast.iter_child_nodes(node))
    return found


def evaluated(node: ast.AST) -> list[ast.AST]:
    """What of a definition runs where it stands: decorators, bases, and the defaults of every kind of parameter."""
    parts: list[ast.AST | None] = [*getattr(node, "decorator_list", []), *getattr(node, "bases", [])]
    if isinstance(node, (*FUNCTIONS, ast.Lambda)):
        parts += [*node.args.defaults, *node.args.kw_defaults]
    return [part for part in parts if part is not None]


def at_once(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that runs with it, and not only when a function is called."""
    yield node
    below = evaluated(node) if isinstance(node, (*FUNCTIONS, ast.Lambda)) else ast.iter_child_nodes(node)
    for child in below:
        yield from at_once(child)


def named(node: ast.AST) -> set[str]:
    """The names that one node binds by itself."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {bound_as(alias) for alias in node.names}
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return {node.name} if node.name else set()
    return {node.rest} if isinstance(node, ast.MatchMapping) and node.rest else set()


def bound_as(alias: ast.alias) -> str:
    """The name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


class ModuleNames(ast.NodeVisitor):
    """Gathers the uses of the module's own names; `deferred` leaves out what runs only when a function is called."""

    def __init__(self, *, deferred: bool = True) -> None:
        self.found: list[ast.Name] = []
        self.rebound: set[str] = set()  # by `global`, from within a function
        self.deferred = deferred
        self.scopes: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and not any(node.id in scope for scope in self.scopes):
            self.found.append(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        hints = [arg.annotation for arg in every if arg] if node.decorator_list else []
        hints.append(node.returns if node.decorator_list else None)
        self.outside([*hints, *evaluated(node)])
        self.inside(node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.outside(evaluated(node))
        self.inside(node.args, [node.body])

    def outside(self, parts: Iterable[ast.AST | None]) -> None:
        for part in parts:
            if part is not None:
                self.visit(part)

    def inside(self, given: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        if not self.deferred:
            return
        declared = [n for part in body for n in own_scope(part) if isinstance(n, ast.Global | ast.Nonlocal)]
        shared = {name for node in declared for name in node.names}
        for node in declared:
            if isinstance(node, ast.Global):
                self.rebound.update(node.names)
        params = {n.arg for n in ast.walk(given) if isinstance(n, ast.arg)}
        self.scopes.append((params | stored(body)) - shared)
        for part in body:
            self.visit(part)
        self.scopes.pop()

    def visit_comprehension_scope(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)
        self.scopes.append(stored(generator.target for generator in node.generators))
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_scope

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)


def own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that stands in the same scope."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            yield from own_scope(child)


def module_names(node: ast.AST, *, deferred: bool = True) -> list[ast.Name]:
    """Each place in a node where a name of its module is meant."""
    visitor = ModuleNames(deferred=deferred)
    visitor.visit(node)
    return visitor.found


def reads(node: ast.AST, *, deferred: bool = True) -> set[str]:
    """The names of its module on which a node's meaning may depend."""
    return {name.id for name in module_names(node, deferred=deferred)}


def root(node: ast.AST) -> ast.Name | None:
    """The name at which a chain of attributes, items and calls begins."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node if isinstance(node, ast.Name) else None


@dataclass(frozen=True)
class Change:
    """A name, and what is done to it: `set` an attribute or item, a `method` that changes it, or handed to a `call`."""

    name: ast.Name
    how: Literal["set", "method", "call"]


def changes(node: ast.AST, changing: frozenset[str] = frozenset(), *, deferred: bool = False) -> list[Change]:
    """Where a node changes something in place, the name of its module at which that something is reached.

    `changing` names functions and methods that do so to what they are given or belong to.
    """
    meant = {id(name) for name in module_names(node, deferred=deferred)}
    found = [change for part in ast.walk(node) for change in changes_at(part, changing)]
    return [change for change in found if id(change.name) in meant]


def changes_at(part: ast.AST, changing: frozenset[str]) -> Iterator[Change]:
    if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
        if name := root(part):
            yield Change(name, "set")
    elif isinstance(part, ast.Call):
        called = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
        if isinstance(part.func, ast.Attribute) and called in CHANGERS | changing and (name := root(part.func)):
            yield Change(name, "method")
        if called in SETTERS:
            yield from (Change(n, "set") for arg in part.args[:1] if (n := root(arg)))
        if called in CHANGERS | SETTERS | changing:
            given = [*part.args, *(word.value for word in part.keywords)]
            yield from (Change(n, "call") for arg in given for n in ast.walk(arg) if isinstance(n, ast.Name))
        if called in changing:
            yield from (Change(n, "call") for n in ast.walk(part.func) if isinstance(n, ast.Name))
    elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call | ast.Await):  # called for what it does
        yield from (Change(n, "call") for n in ast.walk(part.value) if isinstance(n, ast.Name))


def shared_with(node: ast.stmt) -> set[str]:
    """The names whose objects a binding may give another name to: `A = B`, `A = [B, C]`, `for a in (B, C)`."""
    found: set[str] = set()

    def follow(part: ast.AST) -> None:
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Call):
            if isinstance(part.func, ast.Attribute):
                follow(part.func.value)
            for one in part.args:
                follow(one)
        elif not isinstance(part, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            for child in ast.iter_child_nodes(part):
                follow(child)

    follow(node)
    return found
