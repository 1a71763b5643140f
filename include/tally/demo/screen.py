"""The live screen of a demo: what comes up, then each pipeline's numbers; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tally.demo.parts import Part
from tally.demo.watch import Seen

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

MARKS = {
    "pending": "[dim]·[/]",
    "starting": "[yellow]…[/]",
    "up": "[green]✓[/]",
    "failed": "[bold red]✗[/]",
    "stopped": "[dim]■[/]",
}
STATES = {"healthy": "green", "idle": "green", "starting": "yellow", "catching_up": "yellow", "paused": "yellow"}
HEADS = (
    "pipeline", "state", "events in", "lag", "watermark", "freshest window", "fresh", "sealed", "held",
    "explained", "unexplained",
)  # fmt: skip
PLAIN_EVERY = 10.0  # seconds between two lines of numbers in a log


class Screen:
    """Draws on a terminal, or writes a line for each change elsewhere."""

    def __init__(self, parts: list[Part], say: Callable[[str], None], *, live: bool) -> None:
        self.parts, self.say, self.links = parts, say, dict[str, str]()
        self.reached = ""
        self._live: Live | None = None
        self._said: dict[str, str] = {}
        self._numbers_at = 0.0
        if live:
            from rich.live import Live as Screenful

            self._live = Screenful(auto_refresh=False)
            self._live.start()

    def draw(self, seen: Seen) -> None:
        """Show how things are now."""
        if self._live is not None:
            self._live.update(whole(self.parts, self.links, seen, self.reached), refresh=True)
            return
        for part in self.parts:
            state = f"{part.state} {part.note}"
            if part.state != "pending" and self._said.get(part.name) != state:
                self._said[part.name] = state
                self.say(part.line())
        for name, link in self.links.items():
            if self._said.get(name) != link:
                self._said[name] = link
                self.say(f"{name}: {link}")
        if self.reached and self._said.get("reached") != self.reached:
            self._said["reached"] = self.reached
            self.say(self.reached)
        if time.monotonic() - self._numbers_at >= PLAIN_EVERY and any(row["events_in"] for row in seen.pipelines):
            self._numbers_at = time.monotonic()
            for row in seen.pipelines:
                self.say("  " + "  ".join(f"{head} {cell}" for head, cell in zip(HEADS, cells(row), strict=True)))
            self.say(f"  {footer(seen)}")

    def close(self) -> None:
        """Leave the last screen standing and give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def whole(parts: list[Part], links: dict[str, str], seen: Seen, reached: str = "") -> Group:
    """All of the screen."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text.from_markup(f"{name}: [bold cyan]{link}[/]") for name, link in links.items()]
    body = [table_of_pipelines(seen.pipelines)] if any(row["events_in"] for row in seen.pipelines) else []
    return Group(
        table_of_parts(parts),
        *lines,
        Text(""),
        *body,
        *([Text(reached)] if reached else []),
        Text(footer(seen), style="dim"),
        Text("Ctrl-C stops everything", style="dim"),
    )


def table_of_parts(parts: list[Part]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for part in parts:
        seconds = "" if part.seconds is None else f"{part.seconds:.0f} s"
        table.add_row(MARKS[part.state], part.name, part.state, seconds, part.note)
    return table


def table_of_pipelines(rows: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in HEADS:
        left = head in ("pipeline", "state", "watermark", "freshest window")
        table.add_column(head, justify="left" if left else "right", no_wrap=head == "pipeline")
    for row in rows:
        shown = cells(row)
        shown[1] = f"[{STATES.get(row['state'], 'bold red')}]{shown[1]}[/]"
        shown[-1] = f"[{'bold red' if row['unexplained'] else 'green'}]{shown[-1]}[/]"
        table.add_row(*shown)
    return table


def cells(row: dict[str, Any]) -> list[str]:
    """A pipeline's numbers as text, in the order of HEADS."""
    fresh, lag = row["freshness_seconds"], row["lag_records"]
    return [
        row["pipeline"],
        row["state"],
        f"{row['events_in']:,}",
        "–" if lag is None else f"{lag:,}",
        clock(row["watermark"]),
        clock(row["newest_window"]),
        "–" if fresh is None else f"{fresh:.1f} s",
        *(f"{row[name]:,}" for name in ("sealed", "held", "explained", "unexplained")),
    ]


def clock(moment: str | None) -> str:
    """The time of day of an ISO instant, UTC."""
    return "–" if moment is None else moment[11:19]


def footer(seen: Seen) -> str:
    """What the producer sent, and the memory of it all."""
    sent = ", ".join(f"{count:,} {topic}" for topic, count in seen.topics.items()) or "nothing yet"
    odd = ", ".join(f"{count:,} {kind}" for kind, count in seen.classes.most_common() if kind != "good")
    used = sum(seen.memory.values()) / 2**30
    by_part = ", ".join(f"{name} {size / 2**20:,.0f} MB" for name, size in seen.memory.items())
    return (
        f"sent: {sent}{f' (of these {odd})' if odd else ''} · memory {used:.2f} GiB{f': {by_part}' if by_part else ''}"
    )
