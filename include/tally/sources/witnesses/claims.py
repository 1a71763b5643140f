"""What the commits of archive and quarantine say of some ranges of time, in whole cells of each of these commits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tally.catalog.ranges import Range, ceil, floor, merge
from tally.catalog.spec import Topic
from tally.control import manifests
from tally.sources.records import contract
from tally.sources.witnesses.checksum import HOUR
from tally.sources.witnesses.manifest import Manifest, Sums

# Hours that are compared one by one; of more than two years of them all rows are compared per partition instead.
MOST_HOURS = 20_000
EVERYTHING = [(-(1 << 60), 1 << 60)]


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What the commits up to an ingest say of a table's rows in some ranges of time, in whole cells of each commit."""

    place: str
    since: int  # of the rows of later ingests than this one
    baseline: int  # up to this ingest one commit answers for the rows of all
    ranges: list[Range]
    said: dict[int, Manifest]  # by ingest
    exact: bool  # whether rows were decoded under the topic's contract: else only their bytes can be compared

    def unit(self, time: int) -> int:
        """Which of the ranges a time lies in."""
        return bisect_right(self.ranges, (time, 1 << 62)) - 1

    def by(self, seq: int) -> int:
        """The ingest whose commit answers for the rows of another one."""
        return max(seq, self.baseline)

    def cell(self, seq: int, hour: int) -> int:
        """The cell of a commit that an hour lies in, as far as hours are what they were when it was written."""
        if not self.exact:
            return 0
        return self.said[seq].cell_of(hour) if seq in self.said else hour


def claimed(
    topic: Topic, place: str, era: int, through: int, ranges: Sequence[Range] | None, since: int = -1
) -> Claimed:
    """What commits of later ingests say of the ranges, which grow to whole cells of each of these commits."""
    claims = manifests.claims(topic.name, place, era, through)
    baseline = max((claim.seq for claim in claims if claim.baseline), default=-1)
    if baseline > since:
        since = -1  # which rows of it came later it does not say
    claims = [claim for claim in claims if claim.seq > since]
    exact = {claim.contract for claim in claims} <= {contract.of(topic)}
    everything = ranges is None or not exact  # under another contract an event may have had another time
    reach = EVERYTHING if everything else merge((floor(a, HOUR), ceil(b, HOUR)) for a, b in ranges or ())
    said: dict[int, Manifest] = {}
    while True:
        met = {c.seq for c in claims if c.seq not in said and meets(reach, (c.from_ms, c.to_ms))}
        bodies = manifests.bodies(topic.name, place, era, met)
        said |= {seq: Manifest.from_words(body) for seq, body in bodies.items()}
        wider = widened(reach, said.values())
        if not met and wider == reach:
            break
        reach = wider
    if sum(end - start for start, end in reach) > MOST_HOURS * HOUR and reach != EVERYTHING:
        return claimed(topic, place, era, through, None, since)
    return Claimed(
        place=place,
        since=since,
        baseline=baseline,
        ranges=reach,
        said=said,
        exact=exact,
    )


def answering(topic: Topic, place: str, era: int, through: int) -> Iterable[Manifest]:
    """The manifest of every commit that answers for rows of an era up to an ingest."""
    seqs = [claim.seq for claim in manifests.claims(topic.name, place, era, through)]
    return map(Manifest.from_words, manifests.bodies(topic.name, place, era, seqs).values())


def meets(ranges: Sequence[Range], other: Range) -> bool:
    """Whether one of these sorted ranges has an instant in common with another one."""
    at = bisect_right(ranges, (other[1] - 1, 1 << 62)) - 1
    return at >= 0 and ranges[at][1] > other[0]


def widened(ranges: list[Range], said: Iterable[Manifest]) -> list[Range]:
    """The ranges with each cell whole that one of them meets."""
    if ranges == EVERYTHING:
        return ranges
    found = list(ranges)
    for manifest in said:
        if not manifest.grain:
            return EVERYTHING
        spans = (manifest.range_of(number) for number in {number for _, number in manifest.cells})
        found += [span for span in spans if meets(ranges, span)]
    return merge(found)


def cells_of(claims: Claimed) -> Iterable[tuple[int, int, int, Sums]]:
    """(ingest, partition, start of the cell, sums) of each cell in the ranges."""
    for seq, manifest in claims.said.items():
        for (partition, number), sums in manifest.cells.items():
            start = manifest.range_of(number)[0]
            unit = claims.unit(start)
            if unit >= 0 and start < claims.ranges[unit][1]:
                yield seq, partition, start, sums
