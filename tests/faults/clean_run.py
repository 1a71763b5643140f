"""A run in which nothing went wrong: what was sent, and what the tables of a correct Tally say of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from faults import truth
from faults.tables import Seen
from faults.truth import MINUTE, SECOND, SHAPES, Batch, Sent

T0 = 1_767_600_000_000
REASONS = ("empty", "not_json", "time_unit")


@dataclass
class Case:
    """What was sent, and what the tables say of it."""

    sent: list[Sent]
    seen: Seen


def story(seed: int, topic: str) -> list[Sent]:
    """A hundred minutes of events with late ones, second copies and refused ones, and a last one that closes them."""
    rng, ends, sent = random.Random(seed), Counter[int](), []

    def send(kind: str, **facts: object) -> None:
        partition = rng.randrange(2)
        place = (topic, partition, ends[partition])
        ends[partition] += 1
        sent.append(Sent(place=place, broker_time=T0 + len(sent), kind=kind, **facts))  # type: ignore[arg-type]

    for number in range(400):
        dice = rng.random()
        at = T0 + number * 15 * SECOND - rng.randrange(20 * SECOND)
        if dice < 0.05:
            send("bad", refused=rng.choice(REASONS))
            continue
        first = next((one for one in sent if one.valid), None)
        if dice < 0.12 and first is not None:
            of = rng.choice([one for one in sent[-30:] if one.valid] or [first])
            send("again", time=of.time, id=of.id, shop=of.shop, amount=of.amount)
            continue
        late = rng.randrange(5, 50) * MINUTE if dice < 0.2 else 0
        send("good", time=at - late, id=number, shop=rng.randrange(3), amount=rng.randrange(1, 80) / 4)
    send("flush", time=T0 + 200 * MINUTE, id=10**6, shop=99, amount=0.25)
    return sent


def cut(sent: list[Sent], seed: int) -> list[Batch]:
    """The stream's micro-batches, by Spark's rule for watermarks, the last two without records."""
    rng, reached, batches = random.Random(seed), Counter[int](), []
    ends = Counter({p: sum(one.place[1] == p for one in sent) for p in (0, 1)})
    mark = before = 0
    while reached != ends or len(batches) < 2 or batches[-1].watermark < mark or batches[-1].late_watermark < mark:
        to = {p: min(ends[p], reached[p] + rng.randrange(25)) for p in (0, 1)}
        ranges = {p: (reached[p], to[p]) for p in (0, 1)}
        at = len(batches)
        batch = Batch(generation=1, batch=at, ranges=ranges, late_watermark=before, watermark=mark, version=at + 1)
        batches.append(batch)
        newest = max((one.time for one in sent if one.valid and batch.holds(one.place)), default=0)
        before, mark, reached = mark, max(mark, newest - truth.LATENESS), Counter(to)
    return batches


def clean(seed: int) -> Case:
    """A run in which nothing went wrong, as a correct Tally would leave it."""
    name = sorted(SHAPES)[seed % len(SHAPES)]
    shape = SHAPES[name]
    sent = story(seed, shape.topic)
    batches = cut(sent, seed)
    events = truth.valid(sent, shape.topic)
    walked, again = truth.walk(events, shape, batches), truth.copies(events, shape)
    mark = batches[-1].watermark
    served = {k: (*row, "sealed" if k[1] <= mark else "open") for k, row in truth.windows(events, shape).items()}
    counts = Counter(
        "aggregated" if e.place in walked.accepted
        else "duplicate" if e.place in again or e.place not in walked.late
        else "late"
        for e in events
    )  # fmt: skip
    found = {"verdict": "reconciled", "unexplained": 0, "failed": [], "conservation": dict(counts)}
    seen = Seen(
        name, served=served, speed=dict(walked.rows), archive=Counter(e.place for e in events), batches=batches,
        quarantine={one.place: [str(one.refused)] for one in sent if not one.valid}, found=found,
    )  # fmt: skip
    return Case(sent, seen)
