"""What the newest restatement says of its batch table, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tally.catalog.ranges import Range, without


@dataclass(frozen=True, kw_only=True)
class Restatement:
    """What the batch table holds: which windows were ever stated, from which archive commit of each topic."""

    covered: list[Range]
    stale: list[Range]  # of these, what events of later archive commits touch, and was not stated again
    through: dict[str, int]  # events of archive commits up to this one are stated wherever they fall, per topic
    seen: dict[str, int]  # what is stale was worked out up to this archive commit, per topic
    versions: dict[str, int]  # the archive's Delta version, per topic
    redecoded: dict[str, int]  # what was decoded again up to this version of it is stated wherever it falls, per topic
    ends: dict[str, dict[int, int]]  # the archive's end offsets, per topic
    ranges: list[Range]  # what this one replaced
    delta_version: int

    @property
    def followed(self) -> tuple[dict[str, int], dict[str, int]]:
        """The archive commits, and the versions decoded again, of which every touched window was stated."""
        return self.through, self.redecoded

    @property
    def current(self) -> list[Range]:
        """The windows that hold all that the archive held."""
        return without(self.covered, self.stale)


def from_words(words: dict[str, Any], version: int) -> Restatement:
    return Restatement(
        covered=[(a, b) for a, b in words["covered"]],
        stale=[(a, b) for a, b in words["stale"]],
        through=words["through"],
        seen=words["seen"],
        versions=words["versions"],
        redecoded=words.get("redecoded", {}),
        ends={t: {int(p): o for p, o in parts.items()} for t, parts in words["ends"].items()},
        ranges=[(a, b) for a, b in words["ranges"]],
        delta_version=version,
    )
