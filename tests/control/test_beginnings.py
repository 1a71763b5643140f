"""Where the numbers begin: from what is known of each partition's first records, or from what a person said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tally.catalog.declare import pipeline, session, topic, tumbling
from tally.catalog.spec import Pipeline
from tally.control import beginnings, seals
from tally.control.seals import Seal

MINUTE = 60_000
NOON = 1_793_534_400_000

rides = topic("rides", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="10 minutes")
payments = topic("payments", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="2 minutes")
unique = topic("unique", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="7 minutes", unique="id")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


@pipeline(reads=rides, window=tumbling("1 minute"), key="id")
def plain(rides):  # type: ignore[no-untyped-def]
    return rides


@pipeline(reads=payments, window=tumbling("1 minute"), key="id")
def paid(payments):  # type: ignore[no-untyped-def]
    return payments


@pipeline(reads=unique, window=tumbling("1 minute"), key="id")
def once(unique):  # type: ignore[no-untyped-def]
    return unique


@pipeline(reads=payments, window=session("30 minutes"), key="id")
def spans(payments):  # type: ignore[no-untyped-def]
    return payments


@pipeline(reads=[payments, rides], window=tumbling("1 minute"), key="id", reach="20 minutes")
def pairs(payments, rides):  # type: ignore[no-untyped-def]
    return payments


def cut(*, broker: int | None = NOON, newest: int | None = NOON, append: bool = False) -> dict[int, dict[str, object]]:
    return {1: {"first": 2, "broker_time": broker, "append_time": append, "newest": newest}}


def test_a_topic_that_is_read_from_its_start_has_nothing_to_miss() -> None:
    beginnings.keep("rides", NOON, {})
    assert beginnings.of(plain).at is None
    assert not beginnings.of(plain).cuts(0)


@pytest.mark.parametrize(
    ("told", "known", "minutes"),
    [
        (paid, cut(append=True, newest=NOON + 60 * MINUTE), 6),  # the skew of 5 minutes past the first record: a proof
        (paid, cut(), 6),  # the skew: it is more than the lateness
        (plain, cut(), 11),  # the lateness: it is more than the skew
        (plain, cut(newest=NOON + 3 * MINUTE), 14),
        (plain, cut(broker=None, newest=None), 71),  # an empty partition: an hour later the archive was begun
        (once, cut(), 15),  # and a first copy may be missing of an id whose second one is up to a lateness later
        (spans, cut(), 60),  # and the session that began before may reach a gap into it
    ],
)
def test_windows_are_whole_once_no_missed_event_can_belong_to_them(
    told: Pipeline, known: dict[int, dict[str, object]], minutes: int
) -> None:
    beginnings.keep(told.reads[0].name, NOON + 60 * MINUTE, known)
    assert beginnings.of(told).at == NOON + minutes * MINUTE
    assert beginnings.of(told).cuts(NOON + minutes * MINUTE - 1)
    assert not beginnings.of(told).cuts(NOON + minutes * MINUTE)


def test_a_join_begins_where_each_side_does_and_the_second_reaches_further() -> None:
    beginnings.keep("payments", NOON, cut())
    assert beginnings.of(pairs).at == NOON + 6 * MINUTE
    beginnings.keep("rides", NOON, cut())
    assert beginnings.of(pairs).at == NOON + 31 * MINUTE


def test_what_a_person_says_counts_and_moves_the_slots_on_both_sides() -> None:
    beginnings.keep("payments", NOON, cut())
    seals.write([slot(-1, "partial"), slot(0, "partial"), slot(1, "held"), slot(2, "unsealed"), slot(3, "partial")])
    beginnings.say(paid, NOON, by="ada", why="counted by hand")
    assert beginnings.of(paid).at == NOON and beginnings.of(paid).whole_from == NOON + 6 * MINUTE
    assert states() == ["partial", "unsealed", "held", "unsealed", "unsealed"]
    seals.write([slot(0, "sealed"), slot(3, "sealed")])
    beginnings.say(paid, NOON + 2 * MINUTE - 1, by="ada", why="")
    assert beginnings.of(paid).at == NOON + 2 * MINUTE
    assert states() == ["partial", "partial", "held", "unsealed", "sealed"]
    said = beginnings.of(paid).said
    assert said is not None and (said.by, said.why) == ("ada", "")


def slot(at: int, state: str) -> Seal:
    start = NOON + at * MINUTE
    return Seal(
        pipeline="paid", version=paid.version, slot_start=start, slot_end=start + MINUTE, state=state, revision=1,
        digest="d", rows=1, reconciliation=1, changed_at=0,
    )  # fmt: skip


def states() -> list[str]:
    return [seal.state for seal in seals.read("paid", paid.version)]
