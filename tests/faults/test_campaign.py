"""The campaign's short form, and its checker: every planted error is caught, and no clean run raises an alarm."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import oracle
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from faults import invariants, truth
from faults.kinds import kills
from faults.producer import TOPICS
from faults.run import Kind, Run, carry_out
from faults.settle import settled
from faults.tables import Lost, Seen
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


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_run_raises_no_alarm(seed: int) -> None:
    case = clean(seed)
    checked = invariants.check(case.sent, case.seen)
    assert checked.broken == []
    assert (checked.lost, checked.doubled) == (0, 0)
    assert checked.late > 0 and checked.refused > 0, "there was something to get wrong"


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_two_accounts_of_the_stream_agree(name: str) -> None:
    """The campaign's own account against the tests' oracle, which shares no code with it."""
    shape, case = SHAPES[name], clean(sorted(SHAPES).index(name))
    events = truth.valid(case.sent, shape.topic)
    theirs = [oracle.Event(e.place[1], e.place[2], e.broker_time, e.time, e.id, e.shop, e.amount) for e in events]
    kind = "hopping" if shape.size > shape.slide else "tumbling"
    other = oracle.Shape(kind, shape.size, (truth.LATENESS,), slide=shape.slide, unique=shape.unique)
    assert truth.windows(events, shape) == oracle.batch_rows(other, [theirs])
    told = oracle.streamed(other, [theirs], [oracle.Batch((batch.ranges,)) for batch in case.seen.batches])
    walked = truth.walk(events, shape, case.seen.batches)
    assert (walked.rows, walked.watermarks) == (told.rows, told.watermarks)


def some_sealed(case: Case) -> truth.Key:
    return sorted(key for key, row in case.seen.served.items() if row[2] == "sealed" and row[0] > 1)[5]


def served(change: Callable[[tuple[int, float, str]], tuple[int, float, str]]) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        key = some_sealed(case)
        case.seen.served[key] = change(case.seen.served[key])

    return act


def drop_row(case: Case) -> None:
    del case.seen.served[some_sealed(case)]


def wrong_window(case: Case) -> None:
    start, end, shop = key = some_sealed(case)
    case.seen.served[start + 500 * MINUTE, end + 500 * MINUTE, shop] = case.seen.served.pop(key)


def wrong_shop(case: Case) -> None:
    start, end, _ = key = some_sealed(case)
    case.seen.served[start, end, 77] = case.seen.served.pop(key)


def served_twice(case: Case) -> None:
    case.seen.doubled_rows.append(some_sealed(case))


def speed_off_by(by: int) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        key = sorted(case.seen.speed)[4]
        count, total = case.seen.speed[key]
        case.seen.speed[key] = (count + by, total + by * 0.25)

    return act


def speed_row_gone(case: Case) -> None:
    del case.seen.speed[sorted(case.seen.speed)[4]]


def archived_twice(case: Case) -> None:
    case.seen.archive[sorted(case.seen.archive)[7]] += 1


def not_archived(case: Case) -> None:
    del case.seen.archive[sorted(case.seen.archive)[7]]


def told_of_others(case: Case) -> None:
    """An incident names offsets, and others are gone."""
    topic, partition, offset = place = sorted(case.seen.archive)[7]
    del case.seen.archive[place]
    case.seen.told_lost.add(Lost(topic, partition, offset + 1, offset + 2))


def refused_is_archived(case: Case) -> None:
    place = sorted(case.seen.quarantine)[0]
    del case.seen.quarantine[place]
    case.seen.archive[place] += 1


def in_both(case: Case) -> None:
    case.seen.archive[sorted(case.seen.quarantine)[0]] += 1


def valid_is_quarantined(case: Case) -> None:
    place = sorted(case.seen.archive)[7]
    del case.seen.archive[place]
    case.seen.quarantine[place] = ["not_json"]


def quarantined_twice(case: Case) -> None:
    case.seen.quarantine[sorted(case.seen.quarantine)[0]] *= 2


def not_quarantined(case: Case) -> None:
    del case.seen.quarantine[sorted(case.seen.quarantine)[0]]


def wrong_reason(case: Case) -> None:
    case.seen.quarantine[sorted(case.seen.quarantine)[0]] = ["no_id"]


def from_nowhere(case: Case) -> None:
    case.seen.archive["faults.orders", 0, 10**6] += 1


def batch_with_records(case: Case) -> int:
    def full(batch: Batch) -> bool:
        return all(end - start > 3 for start, end in batch.ranges.values())

    return next(at for at, batch in enumerate(case.seen.batches) if at > 2 and full(batch))


def moved(by_start: int, by_end: int) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        at = batch_with_records(case)
        batch = case.seen.batches[at]
        start, end = batch.ranges[0]
        changed = {**batch.ranges, 0: (start + by_start, end + by_end)}
        case.seen.batches[at] = replace(batch, ranges=changed)

    return act


def two_commits(case: Case) -> None:
    case.seen.batches.append(replace(case.seen.batches[-1], version=99))


def two_commits_of_an_old_one(case: Case) -> None:
    case.seen.batches.insert(6, replace(case.seen.batches[3], version=99))


def a_commit_gone(case: Case) -> None:
    del case.seen.batches[batch_with_records(case)]


def older_watermark(case: Case) -> None:
    case.seen.batches[-1] = replace(case.seen.batches[-1], watermark=T0)


def unread_tail(case: Case) -> None:
    last = max(i for i, batch in enumerate(case.seen.batches) if batch.ranges[0][1] > batch.ranges[0][0])
    for at in range(last, len(case.seen.batches)):
        start, _ = case.seen.batches[last].ranges[0]
        case.seen.batches[at] = replace(
            case.seen.batches[at], ranges={**case.seen.batches[at].ranges, 0: (start, start)}
        )


def reconciled_wrongly(name: str, by: int) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        counts = case.seen.found["conservation"]
        counts[name] = counts.get(name, 0) + by
        counts["aggregated"] -= by

    return act


def verdict_held(case: Case) -> None:
    case.seen.found |= {"verdict": "held", "unexplained": 1}


def not_reconciled(case: Case) -> None:
    case.seen.found = {"refused": {"error": "no"}}


PLANTED: dict[str, tuple[str, Callable[[Case], None]]] = {
    "a served event is gone": ("I1", served(lambda row: (row[0] - 1, row[1] - 0.25, row[2]))),
    "a served event counts twice": ("I1", served(lambda row: (row[0] + 1, row[1] + 0.25, row[2]))),
    "a sum is off by a quarter": ("I1", served(lambda row: (row[0], row[1] + 0.25, row[2]))),
    "a closed window is not sealed": ("I1", served(lambda row: (row[0], row[1], "closed"))),
    "a window is held": ("I1", served(lambda row: (row[0], row[1], "held"))),
    "a row is gone": ("I1", drop_row),
    "a row is in another window": ("I1", wrong_window),
    "a row is under another key": ("I1", wrong_shop),
    "a row is served twice": ("I1", served_twice),
    "the stream lost an event": ("I1", speed_off_by(-1)),
    "the stream counted one twice": ("I1", speed_off_by(1)),
    "the stream lost a row": ("I1", speed_row_gone),
    "a watermark went back": ("I1", older_watermark),
    "held by the judge": ("I1", verdict_held),
    "archived twice": ("I2", archived_twice),
    "a refused record is archived": ("I2", refused_is_archived),
    "a record is in both tables": ("I2", in_both),
    "a valid record is quarantined": ("I2", valid_is_quarantined),
    "quarantined twice": ("I2", quarantined_twice),
    "a wrong reason": ("I2", wrong_reason),
    "a record that nobody sent": ("I2", from_nowhere),
    "late ones are counted wrongly": ("I2", reconciled_wrongly("late", 1)),
    "an event is said to be skipped": ("I2", reconciled_wrongly("skipped", 1)),
    "not archived, and nobody says so": ("I3", not_archived),
    "not quarantined, and nobody says so": ("I3", not_quarantined),
    "the incident names other offsets": ("I3", told_of_others),
    "a range is skipped": ("I4", moved(2, 0)),
    "a range is read twice": ("I4", moved(-2, 0)),
    "a range ends too late": ("I4", moved(0, 2)),
    "the newest micro-batch has two commits": ("I4", two_commits),
    "an old micro-batch has two commits": ("I4", two_commits_of_an_old_one),
    "a micro-batch has no commit": ("I4", a_commit_gone),
    "the last records were never read": ("I4", unread_tail),
    "not reconciled": ("I5", not_reconciled),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_caught(name: str) -> None:
    invariant, plant = PLANTED[name]
    for seed in range(len(SHAPES)):
        case = deepcopy(clean(seed))
        plant(case)
        found = {broken.invariant for broken in invariants.check(case.sent, case.seen).broken}
        assert invariant in found, f"{name} ({case.seen.pipeline}): {found}"


def test_lost_offsets_that_were_told_are_no_alarm() -> None:
    """Retention ate what the archive had not read: the events are gone from every table, and an incident says which."""
    case = clean(0)
    shape = SHAPES[case.seen.pipeline]
    topic, partition, first = sorted(place for place in case.seen.archive if place[2] > 60)[0]
    lost = Lost(topic, partition, first, first + 5)
    left = [one for one in case.sent if not lost.holds(one.place)]
    rest = truth.valid(left, shape.topic)
    case.seen.archive = Counter(e.place for e in rest)
    case.seen.quarantine = {p: r for p, r in case.seen.quarantine.items() if not lost.holds(p)}
    case.seen.told_lost = {lost}
    broken = [b for b in invariants.check(case.sent, case.seen).broken if b.invariant == "I3"]
    assert broken == []


def test_a_false_alarm_excuses_nothing_where_nobody_took_a_record() -> None:
    case = clean(0)
    topic = SHAPES[case.seen.pipeline].topic
    case.seen.told_lost = {Lost(topic, 0, 10**6, 10**6 + 5)}
    found = [str(one) for one in invariants.check(case.sent, case.seen, retained=True).broken]
    assert len(found) == 1 and "nobody took" in found[0]


def test_a_run_without_an_event_or_without_a_fault_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {broken.what for broken in invariants.check([], Seen("shop_minutes")).broken}
    assert "no valid event was sent: nothing is proven" in found

    @contextmanager
    def no_stack(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(bootstrap="127.0.0.1:1", pipelines=())

    for name in ("running", "Stack", "Sender", "settle"):
        monkeypatch.setattr(f"faults.run.{name}", no_stack if name == "running" else Mock())
    monkeypatch.setattr(Run, "moves", lambda _: True)
    idle = carry_out(Kind(name="nothing", fault=lambda _: None), seed=1)
    assert [str(one) for one in idle.all_broken] == ["I5 -: nothing was broken: what holds is not proven"]
    assert not carry_out(Kind(name="nothing", fault=lambda _: None, breaks=False), seed=1).all_broken


def two_kills(run: Run) -> None:
    kills.at_point(run, "speed.after_commit")
    kills.kill_all(run.stack)


def test_two_kills_lose_and_double_nothing(spark: SparkSession, broker: str) -> None:
    """One pipeline, a kill between commit and ledger, one at any moment, and every invariant at the end."""
    here = {"TALLY_KAFKA": broker}  # the session's broker and Spark: nobody kills these
    kind = Kind(name="two kills", fault=two_kills, pipelines=("shop_minutes",), settings=here)
    try:
        result = carry_out(kind, seed=1, settled=settled)
    finally:
        for gone in AdminClient({"bootstrap.servers": broker}).delete_topics(list(TOPICS)).values():
            gone.exception(15)
    assert result.all_broken == []
    assert [heal.point for heal in result.heals] == ["speed.after_commit"]
    totals = result.totals()
    assert totals["events"] > 500 and totals["late"] > 5 and totals["again"] > 5 and totals["refused"] > 2
    assert (totals["lost"], totals["doubled"]) == (0, 0)
