"""What a campaign found: one result a fault, as a table for a person and as JSON for a machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults.invariants import Broken, Checked


@dataclass(frozen=True, kw_only=True)
class Heal:
    """One time that something was broken: where, how long until every stream moved again, and by what."""

    point: str
    seconds: float
    by: str = "itself"


@dataclass(kw_only=True)
class Result:
    """One fault's run."""

    fault: str
    seed: int
    runs: int = 1
    heals: list[Heal] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lacking: str = ""  # why it could not be run here
    seconds: float = 0.0

    @property
    def all_broken(self) -> list[Broken]:
        return [*self.broken, *(one for checked in self.checked for one in checked.broken)]

    def totals(self) -> dict[str, int]:
        names = ("events", "lost", "doubled", "late", "again", "refused", "told_lost")
        return {name: sum(getattr(one, name) for one in self.checked) for name in names}

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), **self.totals(), "points": sorted({heal.point for heal in self.heals})}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


HEADS = ("fault", "runs", "points", "kills", "events", "lost", "doubled", "healed by", "p50 s", "p95 s", "max s", "")


def row(result: Result) -> tuple[str, ...]:
    totals, took = result.totals(), [heal.seconds for heal in result.heals]
    times = [f"{value:.1f}" for value in (percentile(took, 0.5), percentile(took, 0.95), max(took, default=0.0))]
    return (
        result.fault, str(result.runs), str(len({heal.point for heal in result.heals})), str(len(took)),
        f"{totals['events']:,}", str(totals["lost"]), str(totals["doubled"]),
        ", ".join(sorted({heal.by for heal in result.heals})) or "-", *(times if took else ["-"] * 3),
        "broken" if result.all_broken else "not run" if result.lacking else "ok",
    )  # fmt: skip


def table(results: Sequence[Result]) -> str:
    """The results in columns, what is broken and what was noted below."""
    lines = [in_columns([HEADS, *map(row, results)])]
    for result in results:
        lines += [f"{result.fault} (seed {result.seed}): {one}" for one in (*said(result), *result.all_broken)]
    return "\n".join(lines)


def in_columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of cells as lines of text, each column as wide as its widest cell."""
    widths = [max(len(line[at]) for line in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in rows
    )


def said(result: Result) -> list[str]:
    return [f"not run, {result.lacking}"] if result.lacking else result.notes


def write(results: Sequence[Result], file: Path) -> None:
    file.write_text(json.dumps([result.as_dict() for result in results], indent=1) + "\n")
