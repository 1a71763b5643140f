"""`tally status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tally.cli.output import Json, print_document
from tally.supervise.watch import WATCHER_SILENCE_MS
from tally.words import printable

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = {
    "pipeline": "left", "state": "left", "events_in": "right", "lag_records": "right", "watermark": "left",
    "freshness_seconds": "right", "sealed_to": "left", "sealed": "right", "partial": "right",
    "held": "right", "unexplained": "right",
}  # fmt: skip
CALM = dict.fromkeys(("starting", "catching_up", "paused", "stopping", "stopped", "outdated"), "yellow")
COLOURS = {"healthy": "green", "idle": "green", **CALM}


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and look again every second.")] = False,
    json: Json = False,
) -> None:
    """Say how each pipeline is: state and why, lag, watermark, freshness, what is sealed and what is unexplained."""
    from tally.serving.status import statuses

    if not watch:
        if json:
            print_document(statuses())
        else:
            print_status(statuses())
        return
    if json:
        from tally.errors import TallyError

        raise TallyError(
            "--json prints one document, --watch never ends", field="--watch", cure="leave one of the two out"
        )
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            live.update(table_of(statuses()), refresh=True)
            time.sleep(1.0)


def print_status(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    console.print(table_of(rows))
    for row in rows:
        if row["state"] not in ("healthy", "idle"):
            line = f"{row['pipeline']}: {row['reason']}; next: {row['next_step']}"
            console.print(printable(line, keep="\n"), markup=False)
    console.print(watched(rows[0]["watcher_seconds"] if rows else None))


def watched(silent: float | None) -> str:
    """Whether somebody watches over the streams, as a line below the table."""
    if silent is None:
        return "no watcher: nobody starts a stream that dies (the streams DAG's watcher in Airflow's triggerer does)"
    if silent * 1000 > WATCHER_SILENCE_MS:
        return f"the watcher is silent for {silent:,.0f} s: only the streams DAG's clock sees to a dead stream"
    return f"the watcher looked {silent:.0f} s ago"


def table_of(rows: list[dict[str, Any]]) -> Table:
    """One line a pipeline; the columns' names are those of --json. Partial slots are shown where there are any."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    columns = [name for name in COLUMNS if name != "partial" or any(row[name] for row in rows)]
    for name in columns:
        table.add_column(name.replace("_", " "), justify=COLUMNS[name], no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        cells = {name: shown(name, row[name]) for name in columns}
        cells["state"] = f"[{COLOURS.get(row['state'], 'bold red')}]{row['state']}[/]"
        if row["unexplained"]:
            cells["unexplained"] = f"[bold red]{row['unexplained']:,}[/]"
        table.add_row(*cells.values())
    return table


def shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name in ("watermark", "sealed_to"):
        return str(value)[:19].replace("T", " ")
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
