"""The campaign's checker: every planted error is caught, and no clean run raises an alarm."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import oracle
import pytest
from clean_run import clean
from planted import PLANTED

from faults import invariants, truth
from faults.tables import Lost
from faults.truth import SHAPES


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
