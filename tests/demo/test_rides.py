"""The generator: its shares, its bounds, its shifts, and that a seed says everything."""

import json
from collections import Counter, defaultdict
from itertools import islice

import pytest

from tally.demo.city import SHORTEST_PAUSE_MINUTES, ZONES
from tally.demo.events import BAD, BROKEN_CLOCK, DUPLICATE, GOOD, LATE, PAYMENTS, RIDES, Disorder, Pending, Record
from tally.demo.rides import FIRST_PAYMENT, Rides

START = 1_780_000_000_000
MINUTE = 60_000
COUNT = 120_000


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(Rides(seed=7, rate=10, start_ms=START, count=COUNT))


def of(records: list[Record], topic: str, *kinds: str) -> list[Record]:
    return [record for record in records if record.topic == topic and (not kinds or record.kind in kinds)]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(records: list[Record]) -> None:
    assert list(islice(Rides(seed=7, rate=10, start_ms=START), 5000)) == records[:5000]
    assert list(islice(Rides(seed=8, rate=10, start_ms=START), 5000)) != records[:5000]


def test_exactly_the_rides_asked_for_each_id_once(records: list[Record]) -> None:
    ids = [int(ride.id) for ride in of(records, RIDES) if ride.kind != DUPLICATE]
    assert ids == list(range(1, COUNT + 1))


def test_shares(records: list[Record]) -> None:
    for topic, lates in ((RIDES, 0.01), (PAYMENTS, 0.0155)):  # a payment that waits for its late ride may be late too
        kinds = Counter(record.kind for record in of(records, topic))
        total = sum(kinds.values())
        assert kinds[DUPLICATE] / total == pytest.approx(0.005, rel=0.15)
        assert sum(kinds[kind] for kind in BAD) / total == pytest.approx(0.002, rel=0.25)
        assert kinds[LATE] / total == pytest.approx(lates, rel=0.15)
        assert all(kinds[kind] for kind in BAD)
    paid = {payment.key for payment in of(records, PAYMENTS)}
    early = [ride for ride in of(records, RIDES, GOOD) if ride.due < START + (COUNT // 10 - 3700 * 2) * 1000]
    assert sum(ride.key in paid for ride in early) / len(early) == pytest.approx(0.97, abs=0.01)


def test_shares_are_options() -> None:
    orderly = Disorder(late=0, duplicates=0, bad=0, stray_ms=0)
    rides = list(Rides(seed=1, rate=10, start_ms=START, count=2000, payments=False, disorder=orderly))
    assert {ride.kind for ride in rides} == {GOOD}
    assert [ride.event for ride in rides] == [START + number * 100 for number in range(2000)]
    awful = Rides(
        seed=1, rate=10, start_ms=START, count=2000, payments=False, disorder=Disorder(bad=1, late=0, duplicates=0)
    )
    assert {ride.kind for ride in awful} == set(BAD)


def test_records_come_in_the_order_of_sending(records: list[Record]) -> None:
    dues = [record.due for record in records]
    assert dues == sorted(dues)


def test_disorder_stays_in_its_bounds(records: list[Record]) -> None:
    for record in of(records, RIDES, GOOD) + of(records, PAYMENTS, GOOD):
        lag = record.due - int(record.event)
        assert -30_000 <= lag <= (30_000 if record.topic == RIDES else 10 * MINUTE), record
    for ride in of(records, RIDES, LATE):
        assert 11 * MINUTE <= ride.due - int(ride.event) <= 60 * MINUTE
    for payment in of(records, PAYMENTS, LATE):
        assert 10 * MINUTE < payment.due - int(payment.event) <= 60 * MINUTE


def test_a_duplicate_has_the_bytes_of_a_good_record_sent_before(records: list[Record]) -> None:
    seen: dict[tuple[str, str], Record] = {}
    repeats = 0
    for record in records:
        if record.kind == DUPLICATE:
            first = seen[record.topic, record.id]
            assert (first.kind, first.key, first.value) == (GOOD, record.key, record.value)
            assert 0 < record.due - first.due <= 60_001
            repeats += 1
        seen[record.topic, record.id] = record
    assert repeats > 500


def test_every_good_ride_is_a_plausible_ride(records: list[Record]) -> None:
    zones: Counter[int] = Counter()
    vendors = set()
    for record in of(records, RIDES, GOOD, LATE):
        ride = json.loads(record.value)
        assert ride["ride_id"] == int(record.key) and ride["pickup"] == record.event
        assert ride["dropoff"] > ride["pickup"] and 1 <= ride["passengers"] <= 6 and ride["distance"] > 0
        fees = round(ride["total_amount"] - ride["fare"] - ride["tip"], 2)
        assert fees in (1.5, 4.0, 4.75, 10.94) and ride["total_amount"] == round(ride["total_amount"], 2)
        fields = f"{ride['vendor_id']},{ride['pickup_zone']},{ride['cab_id']},{ride['total_amount']:.2f}"
        assert record.fields == fields
        zones[ride["pickup_zone"]] += 1
        vendors.add(ride["vendor_id"])
    assert vendors == {1, 2} and set(zones) <= set(range(1, ZONES + 1)) and len(zones) > 200
    assert sum(count for _, count in zones.most_common(20)) > 0.35 * sum(zones.values())


def test_payments_fit_their_rides(records: list[Record]) -> None:
    rides = {record.key: json.loads(record.value) for record in of(records, RIDES, GOOD, LATE)}
    sent = {record.key: record.due for record in of(records, RIDES, GOOD, LATE)}
    beyond = 0
    payments = of(records, PAYMENTS, GOOD, LATE)
    for record in payments:
        payment, ride = json.loads(record.value), rides[record.key]
        after = payment["paid_at"] - ride["pickup"]
        assert payment["amount"] == ride["total_amount"] and record.due > sent[record.key]
        assert payment["payment_id"] == FIRST_PAYMENT + payment["ride_id"] == int(record.id)
        assert MINUTE <= after <= 25 * MINUTE or 31 * MINUTE <= after <= 60 * MINUTE
        beyond += after > 30 * MINUTE
    assert beyond / len(payments) == pytest.approx(0.03, abs=0.006)


def test_cabs_work_in_shifts_with_pauses_that_end_a_session(records: list[Record]) -> None:
    times: dict[int, list[int]] = defaultdict(list)
    for record in of(records, RIDES, GOOD, LATE):
        if int(record.event) >= START:
            times[json.loads(record.value)["cab_id"]].append(int(record.event))
    assert len(times) == 400
    pauses = [b - a for all_of in times.values() for a, b in zip(sorted(all_of), sorted(all_of)[1:], strict=False)]
    long = [pause for pause in pauses if pause > 30 * MINUTE]
    assert len(long) > 400
    assert sum(pause >= SHORTEST_PAUSE_MINUTES * MINUTE for pause in long) / len(long) > 0.9


@pytest.mark.parametrize("topic", [RIDES, PAYMENTS])
def test_bad_records_are_bad_in_the_way_they_are_named(records: list[Record], topic: str) -> None:
    time, number = ("pickup", "total_amount") if topic == RIDES else ("paid_at", "amount")
    for record in of(records, topic, "bad:not_json"):
        with pytest.raises(ValueError):
            json.loads(record.value)
    for record in of(records, topic, "bad:wrong_type"):
        value = json.loads(record.value)
        assert value[number] == "twelve" and value[time] == record.event
    for record in of(records, topic, "bad:no_time"):
        assert time not in json.loads(record.value) and record.event == ""
    for record in of(records, topic, "bad:future"):
        assert json.loads(record.value)[time] == record.event and BROKEN_CLOCK[0] <= int(record.event) < BROKEN_CLOCK[1]
    for record in of(records, topic, "bad:time_unit"):
        assert json.loads(record.value)[time] == record.event and abs(int(record.event) - START / 1000) < 200_000


def test_a_later_generator_goes_on_with_the_ids_and_what_was_pending() -> None:
    first = Rides(seed=3, rate=10, start_ms=START, count=20_000)
    before = list(first)
    second = Rides(
        seed=3, rate=10, start_ms=first.last_ms + 100, first_id=first.next_id, count=20_000, pending=first.pending
    )
    after = list(second)
    ids = [(record.topic, record.id) for record in before + after if record.kind != DUPLICATE]
    assert len(ids) == len(set(ids)) and second.next_id == 40_001
    assert any(int(payment.key) < first.next_id for payment in of(after, PAYMENTS))


def test_until_ends_it_with_all_that_is_due() -> None:
    rides = Rides(seed=3, rate=10, start_ms=START, until_ms=START + 3_600_000)
    records = list(rides)
    assert len([r for r in of(records, RIDES) if r.kind != DUPLICATE]) == 36_000
    assert max(record.due for record in records) <= START + 3_600_000
    assert min(due for due, _ in rides.pending.take_all()) > START + 3_600_000


def test_pending_gives_back_in_order_whatever_the_order_of_adding() -> None:
    pending: Pending[str] = Pending()
    for due in (5_000, 1_000, 9_999, 1_001, 3_600_000):
        pending.add(due, str(due))
    assert pending.pop(999) is None
    assert pending.pop(5_500) == (1_000, "1000")
    pending.add(1_500, "1500")
    assert [pending.pop(10_000) for _ in range(5)] == [
        (1_001, "1001"),
        (1_500, "1500"),
        (5_000, "5000"),
        (9_999, "9999"),
        None,
    ]
    assert pending.take_all() == [(3_600_000, "3600000")]
