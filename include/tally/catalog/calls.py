"""Whether a statement at the top of a file calls something that may change what it can reach."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence

from tally.catalog.libraries import KNOWN
from tally.catalog.scope import FUNCTIONS, at_once, root

# Python's own functions that change nothing of what they are given.
QUIET = {
    "abs", "all", "any", "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float", "format",
    "frozenset", "getattr", "hasattr", "int", "isinstance", "issubclass", "len", "list", "map", "max", "min", "object",
    "ord", "pow", "print", "property", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum",
    "super", "tuple", "type", "zip",
}  # fmt: skip
# Modules whose values nobody changes in place.
UNCHANGING = {"pyspark", "decimal", "datetime", "re", "math", "fractions", "tally"}


class Calls:
    """What of a file's own names its statements can change by calling something."""

    def __init__(self, body: Sequence[ast.stmt], binders: dict[str, list[int]], modules: dict[str, list[str]]) -> None:
        self.made = {name: [body[at] for at in places] for name, places in binders.items()}
        self.libraries = {name: {m.split(".")[0] for m in found} for name, found in modules.items()}

    def may_change(self, node: ast.stmt) -> bool:
        """Whether a statement calls a function, a method, a class or a decorator of the catalogue's own."""
        for part in at_once(node):
            if isinstance(part, ast.Call) and not self.is_quiet(part):
                return True
            if isinstance(part, (*FUNCTIONS, ast.ClassDef)) and any(self.is_own(one) for one in part.decorator_list):
                return True
            if isinstance(part, ast.ClassDef) and any(self.is_own(one) for one in (*part.bases, *part.keywords)):
                return True
        return False

    def is_quiet(self, call: ast.Call) -> bool:
        given = [*call.args, *(word.value for word in call.keywords)]
        if any(self.can_be_called(one) for one in given):
            return False
        name = root(call.func)
        if name is None:
            return isinstance(call.func, ast.Attribute)  # a method of a text, a number, a list that is written there
        if name.id in self.libraries:
            return self.is_library(name.id)
        if name.id not in self.made:
            return name.id in QUIET or isinstance(call.func, ast.Attribute)
        return isinstance(call.func, ast.Attribute) and all(self.is_plain(one) for one in self.made[name.id])

    def is_library(self, name: str) -> bool:
        return self.libraries[name] <= sys.stdlib_module_names | KNOWN | {"tally"}

    def is_own(self, node: ast.AST) -> bool:
        """Whether something is the catalogue's own, and no library's."""
        name = root(node.value if isinstance(node, ast.keyword) else node)
        return name is None or (name.id in self.made and not (name.id in self.libraries and self.is_library(name.id)))

    def can_be_called(self, node: ast.AST) -> bool:
        """Whether what is handed over could be a function of the file, or a method of something that it holds."""
        if isinstance(node, ast.Lambda):
            return True
        name = root(node)
        if name is None or name.id not in self.made or name.id in self.libraries:
            return False
        return isinstance(node, ast.Attribute) or any(not self.is_plain(one) for one in self.made[name.id])

    def is_plain(self, node: ast.stmt) -> bool:
        """Whether a name is bound to constants, to a container of Python's own, or to what a library gives."""
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or value is None:
            return False
        inside = [part for part in ast.walk(value) if isinstance(part, ast.Call | ast.Lambda)]
        calls = [part for part in inside if isinstance(part, ast.Call)]
        held = isinstance(value, ast.Attribute | ast.Name)
        return not held and len(calls) == len(inside) and all(self.is_quiet(part) for part in calls)

    def is_mutable(self, name: str) -> bool:
        """Whether what a name holds can be changed in place."""
        return not all(self.is_fixed(node) for node in self.made.get(name, []))

    def is_fixed(self, node: ast.stmt) -> bool:
        if isinstance(node, (*FUNCTIONS, ast.Import, ast.ImportFrom)):
            return True
        value = getattr(node, "value", None)
        return isinstance(node, ast.Assign | ast.AnnAssign) and value is not None and self.is_fixed_value(value)

    def is_fixed_value(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant | ast.Lambda):
            return True
        if isinstance(value, ast.UnaryOp):
            return self.is_fixed_value(value.operand)
        if isinstance(value, ast.BinOp):
            return self.is_fixed_value(value.left) and self.is_fixed_value(value.right)
        if isinstance(value, ast.Tuple):
            return all(self.is_fixed_value(one) for one in value.elts)
        name = root(value) if isinstance(value, ast.Call) else None
        return name is not None and self.libraries.get(name.id, {""}) <= UNCHANGING
