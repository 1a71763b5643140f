"""The lines of what a machine wrote."""

from __future__ import annotations


def lines_of(text: str) -> list[str]:
    r"""Lines end at "\n" alone: for Python they end at U+2028 too, which stands in JSON texts as it is."""
    return text.removesuffix("\n").split("\n") if text else []
