"""Text that people and other machines give, shown so that it can neither drive a terminal nor pass for another line."""

from __future__ import annotations

# Characters: no more of a wrong value than tells a reader which one is meant.
SHOWN = 100
# Characters: a short paragraph on why a person wants something; the whole story has a better place.
LONGEST_REASON = 1000


def printable(text: str, keep: str = "") -> str:
    """The text, with characters that a terminal acts on or a reader cannot see written as escapes, but for `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def named(text: str) -> str:
    """A name on one line, and cut where it is longer than any name."""
    return printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)")


def quoted(text: str) -> str:
    """The text between quotes, on one line, and cut where it is long."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}... ({len(text):,} characters)"


def is_text(text: str) -> bool:
    """Whether every store can keep it: UTF-8, and without the NUL that PostgreSQL has no place for."""
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)
