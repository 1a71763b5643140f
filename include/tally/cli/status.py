"""`tally status`, `incidents` and `doctor`: how everything is, what went wrong, and what one stream lacks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tally.base.safe_text import printable
from tally.base.settings import settings
from tally.cli.output import Json, say, show

if TYPE_CHECKING:
    from rich.table import Table

    from tally.supervise.status import Status


COLUMNS = {
    "pipeline": "left", "state": "left", "path": "left", "events_in": "right", "lag_records": "right",
    "watermark": "left", "freshness_seconds": "right", "sealed_to": "left", "sealed": "right", "partial": "right",
    "held": "right", "unexplained": "right",
}  # fmt: skip
# A micro-batch that takes so many times its pace, and so many seconds, is worth a line.
SLOW, SHORT = 5, 5.0
CALM = dict.fromkeys(("starting", "catching_up", "paused", "stopping", "stopped", "outdated"), "yellow")
COLOURS = {"healthy": "green", "idle": "green", **CALM}


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and look again every second.")] = False,
    json: Json = False,
) -> None:
    """Say how each pipeline is: state and why, lag, watermark, freshness, what is sealed and what is unexplained."""
    from tally.supervise.status import statuses

    if not watch:
        found = statuses()
        show([one.as_json() for one in found], json, lambda: print_status(found))
        return
    if json:
        from tally.base.errors import TallyError

        raise TallyError(
            "--json prints one document, --watch never ends", field="--watch", cure="leave one of the two out"
        )
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            live.update(table_of(statuses()), refresh=True)
            time.sleep(1.0)


def print_status(rows: Sequence[Status]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    console.print(table_of(rows))
    for line in slow(rows):
        console.print(line, markup=False)
    for row in rows:
        health = row.health
        if health.state not in ("healthy", "idle"):
            line = f"{health.pipeline}: {health.reason}; next: {health.next_step}"
            console.print(printable(line, keep="\n"), markup=False)
    console.print(watched(rows[0].health.watcher_seconds if rows else None))


def slow(rows: Sequence[Status]) -> Iterator[str]:
    """Of whose micro-batches the pace is not kept, and what that means."""
    pace = settings().trigger_seconds
    for row in rows:
        took = row.health.micro_batch_seconds
        if row.health.state == "healthy" and took is not None and took > max(SLOW * pace, SHORT):
            said = f"takes {took:.1f} s, where TALLY_TRIGGER_SECONDS says {pace:g}"
            yield f"{row.health.pipeline}: a micro-batch {said}: the next one takes all that came meanwhile"


def watched(silent: float | None) -> str:
    """Whether somebody watches over the streams, as a line below the table."""
    from tally.supervise.watch import WATCHER_SILENCE_MS

    if silent is None:
        return "no watcher: nobody starts a stream that dies (the streams DAG's watcher in Airflow's triggerer does)"
    if silent * 1000 > WATCHER_SILENCE_MS:
        return f"the watcher is silent for {silent:,.0f} s: only the streams DAG's clock sees to a dead stream"
    return f"the watcher looked {silent:.0f} s ago"


def table_of(rows: Sequence[Status]) -> Table:
    """One line a pipeline; the columns' names are those of --json. Partial slots are shown where there are any."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    columns = [name for name in COLUMNS if name != "partial" or any(row.partial for row in rows)]
    for name in columns:
        table.add_column(name.replace("_", " "), justify=COLUMNS[name], no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        said, state = row.as_json(), row.health.state
        cells = {name: shown(name, said[name]) for name in columns}
        cells["state"] = f"[{COLOURS.get(state, 'bold red')}]{state}[/]"
        if row.health.unexplained:
            cells["unexplained"] = f"[bold red]{row.health.unexplained:,}[/]"
        table.add_row(*cells.values())
    return table


def shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name in ("watermark", "sealed_to"):
        return str(value)[:19].replace("T", " ")
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def incidents(
    pipeline: Annotated[str | None, typer.Argument(help="Only those of this pipeline; none named: all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those that are over too.")] = False,
    json: Json = False,
) -> None:
    """List what went wrong and is not over, the oldest first. Exit code 0: nothing is open; 1: something is."""
    from tally.control.incidents import history

    known = history(pipeline)
    if pipeline is not None and not known:
        from tally.catalog.load import catalogue

        catalogue().pipeline(pipeline)  # refused by name, where there is no such pipeline
    chosen = [one for one in known if everything or one.closed_at is None]
    found = [one.as_json() for one in chosen]
    show(found, json, lambda: print_incidents(found))
    if any(one.state == "open" for one in chosen):
        raise typer.Exit(1)


def print_incidents(found: list[dict[str, Any]]) -> None:
    """A block of short lines each, and the count of the open ones at the end, where a terminal leaves the eye."""
    for row in found:
        over = f", over since {moment(row['closed_at'])}" if row["closed_at"] else ""
        say(f"{row['id']} {row['state'].upper()}  {row['pipeline'] or 'all pipelines'}: {row['cause']}")
        lines = {
            "seen": f"{moment(row['first_seen'])} to {moment(row['last_seen'])}, {times(row['times'])}{over}",
            "evidence": row["evidence"],
            "done": row["done"],
            "cure": row["cure"],
        }
        for name, text in lines.items():
            if text:
                say(f"    {name + ':':<10}{text.replace(chr(10), chr(10) + ' ' * 14)}")
    count = sum(row["state"] == "open" for row in found)
    say(f"{count} open" if count else "nothing is open")


def moment(text: str) -> str:
    """ISO 8601 without a fraction of a second, as people read it."""
    return f"{text[:19].replace('T', ' ')} UTC"


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def doctor(pipeline: Annotated[str, typer.Argument(help="Whose stream.")], json: Json = False) -> None:
    """Look at all that one stream needs, a line a check, and say what to do first; exit code 1 if something is bad."""
    from tally.supervise.doctor import examine, first

    found = examine(pipeline)
    ok, todo = all(finding.good for finding in found), first(found)

    def lines() -> None:
        for finding in found:
            say(f"{'ok ' if finding.good else 'BAD'}  {finding.name}: {finding.seen}")
            if finding.cure:
                say(f"     cure: {finding.cure}")
        say(f"first: {todo}" if todo else "all is well: nothing to do")

    checks = [
        {"check": finding.name, "ok": finding.good, "seen": finding.seen, "cure": finding.cure or None}
        for finding in found
    ]
    show({"pipeline": pipeline, "ok": ok, "checks": checks, "first": todo or None}, json, lines)
    if not ok:
        raise typer.Exit(1)
