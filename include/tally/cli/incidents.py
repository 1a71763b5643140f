"""`tally incidents`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tally.cli.output import Json, say, show


def incidents(
    pipeline: Annotated[str | None, typer.Argument(help="Only those of this pipeline; none named: all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those that are over too.")] = False,
    json: Json = False,
) -> None:
    """List what went wrong and is not over, the oldest first. Exit code 0: nothing is open; 1: something is."""
    from tally.control.incidents import document, history

    rows = history(pipeline)
    if pipeline is not None and not rows:
        from tally.catalog.load import catalogue

        catalogue().pipeline(pipeline)  # refused by name, where there is no such pipeline
    found = [document(row) for row in rows if everything or row["closed_at"] is None]
    show(found, json, lambda: print_incidents(found))
    if any(row["state"] == "open" for row in found):
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
