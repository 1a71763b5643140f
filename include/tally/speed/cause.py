"""What lies at the bottom of an error of Spark's: the one line that a person can act on, out of several pages.

What a micro-batch raises in Python comes back as the text of a traceback, our own refusals among them; what Spark
raises for it comes with every error in between.
"""

from __future__ import annotations

import re

LONGEST = 500
PROXY = "An exception was raised by the Python Proxy"
# A line of Python's that ends a traceback: the error's class, and what it says.
RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Lost|No)): (?P<said>.+)$")
REFUSAL = "tally.errors."
# "Caused by: a.b.SomeException: c.d.Other: what it says"
CAUSED = re.compile(r"^\s*Caused by: (?P<said>.+)$")
CLASSES = re.compile(r"^(?:[a-zA-Z_$][\w$]*\.)+[A-Z][\w$]*(?:: |$)")
PLAN = "=== Streaming Query ==="


def cause(text: str) -> tuple[str, str | None]:
    """The line, and the cure where it is a refusal of Tally's that has one."""
    lines = [line for line in text.split(PLAN)[0].splitlines() if line.strip()]
    if not lines:
        return "", None
    refused = refusal(lines)
    if refused is not None:
        return refused
    marked = next((line.strip() for line in lines if line.strip().startswith("[")), None)
    deepest = [said for line in lines if (met := CAUSED.match(line)) and (said := plain(met["said"]))]
    raised = [met["said"] for line in lines if (met := RAISED.match(line))] if PROXY in text else []
    return (marked or (deepest or raised or [lines[0].strip()])[-1])[:LONGEST], None


def refusal(lines: list[str]) -> tuple[str, str | None] | None:
    """The last of Tally's own errors in a traceback: what it says, and its cure in the line below."""
    for at in range(len(lines) - 1, -1, -1):
        met = RAISED.match(lines[at])
        if met and met["kind"].startswith(REFUSAL):
            below = lines[at + 1].strip() if at + 1 < len(lines) else ""
            return met["said"][:LONGEST], below.removeprefix("cure: ") if below.startswith("cure: ") else None
    return None


def plain(said: str) -> str:
    """A message without the names of Java's classes before it."""
    while met := CLASSES.match(said):
        said = said[met.end() :]
    return said.strip()
