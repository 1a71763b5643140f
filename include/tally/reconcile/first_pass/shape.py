"""The columns of a pipeline's rows, of types that are known to be told alike by both passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.catalog.spec import Pipeline
from tally.reconcile.first_pass import unsure
from tally.reconcile.first_pass.tables import Snapshot, duckdb_type
from tally.reconcile.first_pass.unsure import Unsure

WINDOW = ("window_start", "window_end")
FLOATING = {"double": 53, "float": 24}  # with the bits of each


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The columns of a pipeline's rows in the order in which they are hashed."""

    types: Mapping[str, str]
    keys: Sequence[str]

    @property
    def floating(self) -> list[str]:
        return [name for name, kind in self.types.items() if kind in FLOATING]

    @property
    def exact(self) -> list[str]:
        """The measures of which no bit may differ."""
        return [name for name in self.types if name not in (*self.keys, *self.floating)]


def shape_of(batch: Snapshot, stream: Snapshot, pipeline: Pipeline) -> Shape:
    """The columns of both tables; refused where these differ, or are of a type that isn't known to be told alike."""
    types = {name: kind for name, kind in batch.types.items() if name != "_date"}
    keys = [*WINDOW, *pipeline.key]
    if stream.types != {**types, "_batch": "long", "_date": "date"}:
        raise Unsure("the layers' tables have other columns")
    for name, kind in types.items():
        duckdb_type(kind)
        if name.startswith("_") or (name in keys and kind in FLOATING):
            raise Unsure(f"column {name} is {'ours' if name.startswith('_') else 'a key of type ' + kind}")
        if kind in ("decimal(38,38)", "timestamp_ntz"):
            raise Unsure(f"column {name} is of type {kind}")
    shape = Shape(types=types, keys=keys)
    if shape.floating:
        unsure.check_java()
    return shape
