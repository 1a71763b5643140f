"""Five of the six invariants, over plain sets: no Spark, no Tally, so that the checker itself can be checked.

I1 each valid event is counted once; I2 each record is in one place; I3 nothing is lost silently; I4 one writer, whose
micro-batches join. I5, that it heals without hands, is seen while a fault runs: see report.Heal.
So is I6, that nothing given is executed: see kinds/injection.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from faults import truth
from faults.tables import Seen
from faults.truth import SHAPES, Batch, Key, Place, Rows, Sent

SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Broken:
    """One invariant that does not hold, where, and what was seen."""

    invariant: str
    pipeline: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.pipeline}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What became of one pipeline's events."""

    pipeline: str
    events: int
    lost: int
    doubled: int
    late: int
    again: int
    refused: int
    told_lost: int
    broken: list[Broken]


def check(sent: Sequence[Sent], seen: Seen, *, retained: bool = False) -> Checked:
    """All invariants of one pipeline after its last reconciliation; `retained`: the broker still has every record."""
    shape = SHAPES[seen.pipeline]
    mine = [one for one in sent if one.place[0] == shape.topic]
    gone = {one.place for one in mine if any(lost.holds(one.place) for lost in seen.told_lost)}
    nowhere = gone - seen.archive.keys()
    there = [one for one in mine if one.valid and one.place not in nowhere]
    skipped = gone - held(seen.batches, shape.topic, gone)
    walked = truth.walk([one for one in there if one.place not in skipped], shape, seen.batches)
    expected, served = truth.windows(there, shape), {key: row[:2] for key, row in seen.served.items()}
    again = truth.copies(there, shape)
    broken = [
        *counted_once(expected, seen),
        *stream_in_order(walked, seen),
        *one_place(mine, gone, seen),
        *told(mine, gone, seen, retained=retained),
        *one_writer(seen.batches, gone, mine),
        *as_reconciled(there, again, walked, skipped, seen),
    ]
    lost, doubled = difference(expected, served)
    return Checked(
        pipeline=seen.pipeline, events=len(there) - len(again), lost=lost, doubled=doubled,
        late=len(walked.late - again), again=len(again), refused=sum(not one.valid for one in mine),
        told_lost=len(gone),
        broken=[Broken(invariant=name, pipeline=seen.pipeline, what=what) for name, what in broken],
    )  # fmt: skip


def difference(expected: Rows, got: Rows) -> tuple[int, int]:
    """How many events are missing in windows, and how many there are too many."""
    lost = doubled = 0
    for key in expected.keys() | got.keys():
        more = got.get(key, (0, 0.0))[0] - expected.get(key, (0, 0.0))[0]
        lost, doubled = lost + max(0, -more), doubled + max(0, more)
    return lost, doubled


Found = Iterable[tuple[str, str]]


def counted_once(expected: Rows, seen: Seen) -> Found:
    """I1: what is served is what was sent, and every window that closed is sealed."""
    if seen.doubled_rows:
        yield "I1", f"{len(seen.doubled_rows)} rows are served twice: {seen.doubled_rows[:SHOWN]}"
    served = {key: row[:2] for key, row in seen.served.items()}
    yield from (("I1", text) for text in differing(expected, served, "served"))
    mark = max((batch.watermark for batch in seen.batches), default=0)
    unsealed = [key for key, row in seen.served.items() if row[2] != "sealed" and key[1] <= mark]
    if unsealed:
        states = Counter(seen.served[key][2] for key in unsealed)
        yield "I1", f"{len(unsealed)} closed rows are not sealed ({dict(states)}): {sorted(unsealed)[:SHOWN]}"


def stream_in_order(walked: truth.Walked, seen: Seen) -> Found:
    """I1 of the stream alone: its rows are what its micro-batches must give, and so are its watermarks."""

    def kept(rows: Rows) -> Rows:
        return {key: row for key, row in rows.items() if day(key) not in seen.trimmed}

    yield from (("I1", text) for text in differing(kept(walked.rows), kept(seen.speed), "in the speed table"))
    marks = [batch.watermark for batch in seen.batches]
    if marks != walked.watermarks:
        at = next(i for i, (a, b) in enumerate(zip(marks, walked.watermarks, strict=True)) if a != b)
        yield "I1", f"micro-batch {seen.batches[at].batch} has watermark {marks[at]}, due is {walked.watermarks[at]}"


def one_place(mine: Sequence[Sent], gone: set[Place], seen: Seen) -> Found:
    """I2: archive and quarantine hold each record once, the one or the other."""
    valid = {one.place for one in mine if one.valid}
    refused = {one.place: one.refused for one in mine if not one.valid}
    twice = [place for place, times in seen.archive.items() if times > 1]
    twice += [place for place, reasons in seen.quarantine.items() if len(reasons) > 1]
    yield from named("I2", "records lie twice in archive or quarantine", twice)
    yield from named("I2", "records lie in archive and quarantine", set(seen.archive) & set(seen.quarantine))
    yield from named("I2", "refused records were archived", set(seen.archive) & refused.keys())
    yield from named("I2", "valid records were quarantined", set(seen.quarantine) & valid)
    strange = (set(seen.archive) | set(seen.quarantine)) - valid - refused.keys()
    yield from named("I2", "records are there that nobody sent", strange)
    wrong = [place for place, reasons in seen.quarantine.items() if place in refused and reasons[0] != refused[place]]
    if wrong:
        first = wrong[0]
        yield "I2", f"{len(wrong)} reasons are wrong: {first} says {seen.quarantine[first]}, due is {refused[first]}"


def told(mine: Sequence[Sent], gone: set[Place], seen: Seen, *, retained: bool) -> Found:
    """I3: what neither archive nor quarantine holds was named, with its topic, partition and range, and no more."""
    if retained:  # a false alarm would excuse every event that it names
        yield from named("I3", "ranges were told of as gone that nobody took", seen.told_lost)
    if not any(one.valid for one in mine):
        yield "I1", "no valid event was sent: nothing is proven"
    missing = {one.place for one in mine} - set(seen.archive) - set(seen.quarantine)
    yield from named("I3", "records are gone, and no incident names them", missing - gone)


def one_writer(batches: Sequence[Batch], gone: set[Place], mine: Sequence[Sent]) -> Found:
    """I4: each micro-batch of a generation is one commit, and its offsets begin where the last one's ended."""
    numbers = Counter((batch.generation, batch.batch) for batch in batches)
    yield from named("I4", "micro-batches have two commits", [place for place, times in numbers.items() if times > 1])
    for generation in sorted({batch.generation for batch in batches}):
        own = [batch for batch in batches if batch.generation == generation]
        order = [batch.batch for batch in own]
        if order != sorted(order) or set(order) != set(range(len(set(order)))):
            yield "I4", f"micro-batches of generation {generation} are not numbered 0, 1, 2 in order"
        yield from joined(own, gone, mine)


def joined(own: Sequence[Batch], gone: set[Place], mine: Sequence[Sent]) -> Found:
    reached: dict[int, int] = {}
    topic = mine[0].place[0] if mine else ""
    lost = {place[1:] for place in gone}
    for batch in own:
        for partition, (start, end) in batch.ranges.items():
            due = reached.get(partition, 0)
            while (partition, due) in lost and due < start:
                due += 1
            if start != due or end < start:
                word = "skips" if start > due else "repeats"
                yield (
                    "I4",
                    f"micro-batch {batch.batch} {word} offsets of {topic}/{partition}: [{start}, {end}), due {due}",
                )
            reached[partition] = max(end, due)
    short = [one.place for one in mine if one.place[2] >= reached.get(one.place[1], 0) and one.place not in gone]
    yield from named("I4", "records were read by no micro-batch", short)


def as_reconciled(
    there: Sequence[Sent], again: set[Place], walked: truth.Walked, skipped: set[Place], seen: Seen
) -> Found:
    """I2 in numbers: what the reconciliation says became of the records is what became of them."""
    found = seen.found
    if "refused" in found or not found:
        yield "I5", f"not reconciled: {found.get('refused', 'nothing was found')}"
        return
    if found["verdict"] != "reconciled" or found["unexplained"]:
        yield "I1", f"{found['verdict']}, {found['unexplained']} unexplained: {found['failed'][:2]}"
    counts = {
        name: n for name, n in found["conservation"].items() if name not in ("balanced", "records", "quarantined")
    }
    due = Counter(
        "skipped" if one.place in skipped
        else "aggregated" if one.place in walked.accepted
        else "duplicate" if one.place in again or one.place not in walked.late
        else "late"
        for one in there
    )  # fmt: skip
    said = {name: n for name, n in counts.items() if n}
    if said != dict(due):
        yield "I2", f"the reconciliation counts {said}, sent were {dict(due)}"


def differing(expected: Rows, got: Rows, where: str) -> Iterable[str]:
    wrong = sorted(key for key in expected.keys() | got.keys() if expected.get(key) != got.get(key))
    if wrong:
        lost, doubled = difference(expected, got)
        first = ", ".join(f"{key} is {got.get(key)}, due is {expected.get(key)}" for key in wrong[:SHOWN])
        yield f"{len(wrong)} rows {where} are wrong ({lost} events lost, {doubled} doubled): {first}"


def named(invariant: str, what: str, places: Iterable[object]) -> Found:
    wrong = sorted(places)  # type: ignore[type-var]
    if wrong:
        yield invariant, f"{len(wrong)} {what}: {wrong[:SHOWN]}"


def held(batches: Sequence[Batch], topic: str, places: Iterable[Place]) -> set[Place]:
    return {place for place in places if any(batch.holds(place) for batch in batches)}


def day(key: Key) -> date:
    return datetime.fromtimestamp(key[0] / 1000, UTC).date()
