"""A short text for a slot's rows: whether they are the same but for rounding, and whether they are the very same.

For the first, a floating-point measure enters with ten significant digits, and once more with 33 bits: sums taken in
another order digest alike, for a value that lies on the edge between two decimals lies on none of the other grid. It
decides whether a window that is sealed again has a new revision. For the second it enters whole: a row that was changed
behind a seal's back is seen, by however little.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTED, GRID = ":", ","


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The rows of a slot in short: how many, the sums of their hashes, and the last end of their windows."""

    rows: int
    decimal: str
    binary: str
    exact: str
    last_end: int

    @property
    def text(self) -> str:
        """What a seal keeps."""
        return f"{self.decimal}{GRID}{self.binary}{PARTED}{self.exact}"


NOTHING = f"0{GRID}0{PARTED}0"


def alike(one: str, other: str) -> bool:
    """Whether two digests' texts are of the same rows, but for rounding: on one of the grids they are."""
    mine, others = (text.partition(PARTED)[0].split(GRID) for text in (one, other))
    return any(a == b for a, b in zip(mine, others, strict=False))


def same(one: str, other: str) -> bool:
    """Whether they are of the very same rows; an older seal knows them by fewer hashes, or but for rounding only."""
    mine, others = (text.partition(PARTED)[2] for text in (one, other))
    return alike(one, other) and (mine == others or "" in (mine, others))
