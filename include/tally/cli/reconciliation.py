"""What a reconciliation found, as a page of text for a person."""

from __future__ import annotations

import json
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tally.reconcile.causes import meaning
from tally.reconcile.judge import RECONCILED
from tally.reconcile.seal import counted

SHOWN = 10  # differing rows on the screen; the document has the summary's own, the audit table has all


def print_report(found: dict[str, Any]) -> None:
    """The document as a person reads it: causes, first differing rows, the verdict, what to do next."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    for part in parts(found):
        console.print(part, soft_wrap=isinstance(part, Text))  # a path that is broken into lines cannot be copied


def parts(found: dict[str, Any]) -> list[RenderableType]:
    name, since, until = found["pipeline"], found["from"], found["to"]
    if since is None:
        return [Text(f"{name}: every closed window is sealed already"), next_step(found)]
    shown: list[RenderableType] = [
        Text(f"{name} {found['version']}, windows from {since} to {until}"),
        Text(f"{found['windows']:,} rows compared: {found['equal']:,} equal, {found['different']:,} different"),
    ]
    if found["events"] or found["unexplained"]:
        shown += [Text(), causes(found)]
    if found["rows"]:
        shown += [Text(), rows(found)]
    return [*shown, Text(), verdict(found), next_step(found)]


def causes(found: dict[str, Any]) -> Table:
    """Events by cause, and the rows that have none."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column, side in (("cause", "left"), ("events", "right"), ("which is", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for cause, count in sorted(found["events"].items(), key=lambda item: -item[1]):
        table.add_row(cause, f"{count:,}", meaning(cause))
    if found["unexplained"]:
        table.add_row("unexplained (rows)", f"{found['unexplained']:,}", meaning("unexplained"), style="red")
    return table


def rows(found: dict[str, Any]) -> Table:
    """The first rows that differ, with the values of both layers."""
    told = ("window_start", "window_end", "batch", "stream", "cause")
    keys = [name for name in found["rows"][0] if name not in told]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in ("window", *keys, "batch", "stream", "cause"):
        table.add_column(column, overflow="fold")
    for row in found["rows"][:SHOWN]:
        both = distinct(row["batch"], row["stream"])
        table.add_row(row["window_start"], *(cell(row[name]) for name in keys), *both, row["cause"])
    left = found["different"] - min(SHOWN, len(found["rows"]))
    if left > 0:
        table.caption = f"… and {left:,} more"
    return table


def distinct(batch: dict[str, Any] | None, stream: dict[str, Any] | None) -> tuple[str, str]:
    """The measures in which the two sides differ, or all where one side has no such row."""
    one, other = batch or {}, stream or {}
    names = [n for n in (one or other) if batch is None or stream is None or one.get(n) != other.get(n)]

    def told(side: dict[str, Any] | None) -> str:
        return "no row" if side is None else ", ".join(f"{name} {cell(side.get(name))}" for name in names)

    return told(batch), told(stream)


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def verdict(found: dict[str, Any]) -> Text:
    """The verdict in one line, then what failed."""
    states = counted(found["sealed"], found["partial"], found["held"], found["open"])
    if found["restated_since"]:
        states += f", {found['restated_since']:,} restated since and left alone"
    good = found["verdict"] == RECONCILED
    line = Text(f"{found['verdict']}: {states}", style="bold green" if good else "bold red")
    for failed in found["failed"]:
        line.append(f"\n  {failed}", style="not bold red")
    return line


def next_step(found: dict[str, Any]) -> Text:
    """What a person does now."""
    name, window = found["pipeline"], f"--from {found['from']} --to {found['to']}"
    if found["verdict"] != RECONCILED:
        return Text(f"next: {found['page']}; mend the cause, then tally backfill {name} {window}")
    if found["restated_since"]:
        return Text(f"next: tally reconcile {name} {window}")
    if found["partial"]:
        return Text(f"next: tally begin {name} shows what may be missing from partial windows, and --at ends that")
    return Text(f"next: tally read {name}" + (f" {window}" if found["from"] else ""))
