"""Names and texts as SQL has them."""

from __future__ import annotations


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def literal(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
