"""What a reconciliation found, as a page of text for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tally.base.duration import from_millis, iso
from tally.reconcile.causes import meaning

if TYPE_CHECKING:
    from tally.jobs.reconcile import Reconciled
    from tally.reconcile.comparison import Comparison

SHOWN = 10  # differing rows on the screen; the document has the summary's own, the audit table has all


def print_report(done: Reconciled) -> None:
    """A reconciliation as a person reads it: causes, first differing rows, the verdict, what to do next."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    for part in parts(done):
        console.print(part, soft_wrap=isinstance(part, Text))  # a path that is broken into lines cannot be copied


def parts(done: Reconciled) -> list[RenderableType]:
    found = done.compared
    if not found.ranges:
        return [Text(f"{found.pipeline}: every closed window is sealed already"), next_step(done)]
    since, until = edges(found)
    shown: list[RenderableType] = [
        Text(f"{found.pipeline} {found.version}, windows from {since} to {until}"),
        Text(f"{found.windows:,} rows compared: {found.equal:,} equal, {found.different:,} different"),
    ]
    if found.events or found.unexplained:
        shown += [Text(), causes(found)]
    if found.rows:
        shown += [Text(), rows(found)]
    return [*shown, Text(), verdict(done), next_step(done)]


def edges(found: Comparison) -> tuple[str, str]:
    """The compared range, in ISO 8601."""
    start, end = found.span
    return iso(from_millis(start)), iso(from_millis(end))


def causes(found: Comparison) -> Table:
    """Events by cause, and the rows that have none."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column, side in (("cause", "left"), ("events", "right"), ("which is", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for cause, count in sorted(found.events.items(), key=lambda item: -item[1]):
        table.add_row(cause, f"{count:,}", meaning(cause))
    if found.unexplained:
        table.add_row("unexplained (rows)", f"{found.unexplained:,}", meaning("unexplained"), style="red")
    return table


def rows(found: Comparison) -> Table:
    """The first rows that differ, with the values of both layers."""
    keys = list(found.rows[0].key)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in ("window", *keys, "batch", "stream", "cause"):
        table.add_column(column, overflow="fold")
    for row in found.rows[:SHOWN]:
        both = distinct(row.batch, row.stream)
        table.add_row(row.window_start, *(cell(row.key[name]) for name in keys), *both, row.cause)
    left = found.different - min(SHOWN, len(found.rows))
    if left > 0:
        table.caption = f"… and {left:,} more"
    return table


def distinct(batch: Mapping[str, Any] | None, stream: Mapping[str, Any] | None) -> tuple[str, str]:
    """The measures in which the two sides differ, or all where one side has no such row."""
    one, other = batch or {}, stream or {}
    names = [n for n in (one or other) if batch is None or stream is None or one.get(n) != other.get(n)]

    def in_words(side: Mapping[str, Any] | None, beside: Mapping[str, Any]) -> str:
        return "no row" if side is None else ", ".join(f"{n} {told(side.get(n), beside.get(n))}" for n in names)

    return in_words(batch, other), in_words(stream, one)


def told(value: Any, beside: Any) -> str:
    """A value as short as it is still another one than that of the other side."""
    return repr(value) if isinstance(value, float) and value != beside and cell(value) == cell(beside) else cell(value)


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def verdict(done: Reconciled) -> Text:
    """The verdict in one line, then what failed."""
    line = Text(f"{done.verdict.word}: {done.sealed.states}", style="bold green" if done.good else "bold red")
    for failed in done.verdict.failed:
        line.append(f"\n  {failed}", style="not bold red")
    return line


def next_step(done: Reconciled) -> Text:
    """What a person does now."""
    name, window = done.compared.pipeline, ""
    if done.compared.ranges:
        since, until = edges(done.compared)
        window = f" --from {since} --to {until}"
    if not done.good:
        return Text(f"next: {done.verdict.page}; mend the cause, then tally backfill {name}{window}")
    if done.sealed.restated_since:
        return Text(f"next: tally reconcile {name}{window}")
    if done.sealed.partial:
        return Text(f"next: tally begin {name} shows what may be missing from partial windows, and --at ends that")
    return Text(f"next: tally read {name}{window}")
