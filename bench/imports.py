"""How the packages of the product import each other: how many imports lie between two, and which form a circle."""

from __future__ import annotations

import argparse
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from typing import Any

import grimp


def measure(_: argparse.Namespace) -> dict[str, Any]:
    """Modules, imports between packages, and the packages that reach themselves through others."""
    graph = grimp.build_graph("tally", cache_dir=None)
    between = Counter[tuple[str, str]]()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            one, two = package(module), package(other)
            if one != two:
                between[one, two] += 1
    packages = sorted({name for pair in between for name in pair})
    reach = {name: reached(name, between) for name in packages}
    return {
        "modules": len(graph.modules),
        "imports": {f"{one} -> {two}": count for (one, two), count in sorted(between.items())},
        "in_circles": [name for name in packages if name in reach[name]],
        "order": order(between),
        "drawn": drawn(between),
    }


def drawn(between: Counter[tuple[str, str]]) -> list[str]:
    """A line a package, from the roof down, with all that it imports: each name stands in a line below its own."""
    floors = [name for name in reversed(order(between)) if "." in name] or sorted({one for one, _ in between})
    short = {name: name.removeprefix("tally.") for name in floors}
    return [
        f"{short[name]:13} > {' '.join(short[other] for other in floors if (name, other) in between) or '-'}"
        for name in floors
    ]


def package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def reached(name: str, between: Counter[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        one = todo.pop()
        new = {two for a, two in between if a == one} - found
        found |= new
        todo += new
    return found


def order(between: Counter[tuple[str, str]]) -> list[str]:
    """The packages, each after all that it imports; empty where a circle allows none."""
    below: dict[str, set[str]] = {}
    for one, two in between:
        below.setdefault(one, set()).add(two)
    try:
        return list(TopologicalSorter(below).static_order())
    except CycleError:
        return []
