"""Which windows an audit goes over, where it goes on, and what is left where it is killed; the checks need Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from reconcile.comparisons import STEP, T0, use_home

from tally.base.errors import TallyError
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import audits, incidents, seals
from tally.control.seals import Seal
from tally.reconcile.audit import checks, doubted, sealed_windows
from tally.reconcile.audit.sealed_windows import audit, rolling

NAME = "vendor_trips"


class Killed(Exception):
    """The process is gone here."""


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[list[int]]]:
    """What the table and the archive were asked for, pass by pass; no slot fails."""
    use_home(monkeypatch, tmp_path)
    asked: dict[str, list[list[int]]] = {"table": [], "archive": []}

    def answer(name: str) -> Any:
        def look(_: object, __: Pipeline, known: Sequence[Seal], *more: object) -> checks.Faults:
            if known:
                asked[name].append([(seal.slot_start - T0) // STEP for seal in known])
            return {seal: "changed" for seal in known if seal.digest == "bad"}

        return look

    monkeypatch.setattr(sealed_windows, "session", lambda *_, **__: None)
    monkeypatch.setattr(checks, "of_table", answer("table"))
    monkeypatch.setattr(checks, "of_archive", answer("archive"))
    monkeypatch.setattr(checks, "of_manifests", lambda *_, deep: {})
    monkeypatch.setattr(checks, "of_comparisons", lambda *_: {})
    return asked


def slot(at: int, state: str = "sealed", digest: str = "good") -> Seal:
    start = T0 + at * STEP
    return Seal(
        pipeline=NAME, version=catalogue().pipeline(NAME).version, slot_start=start, slot_end=start + STEP,
        state=state, revision=1, digest=digest, rows=1, reconciliation=1, changed_at=0,
    )  # fmt: skip


def states() -> str:
    return "".join(seal.state[0] for seal in seals.read(NAME, catalogue().pipeline(NAME).version))


def test_each_day_takes_its_part_until_all_had_their_turn(
    looked: dict[str, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seals.write([slot(at, "partial" if at < 2 else "held" if at == 5 else "sealed") for at in range(9)])
    monkeypatch.setenv("TALLY_AUDIT_WITHIN", "3 days")
    assert [rolling(NAME).windows for _ in range(4)] == [3, 3, 2, 3]
    assert looked["table"] == looked["archive"] == [[0, 1, 2], [3, 4, 6], [7, 8], [0, 1, 2]]
    audits.went_on(NAME, catalogue().pipeline(NAME).version, place=T0 + 99 * STEP)
    monkeypatch.setattr(sealed_windows, "PART", 2)
    assert rolling(NAME).windows == 3, "past the last one it begins anew"
    assert looked["table"][4:] == [[0, 1], [2]]


def test_all_are_held_against_the_table_and_a_part_against_the_archive(
    looked: dict[str, list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seals.write([slot(at) for at in range(8)])
    monkeypatch.setattr(sealed_windows, "PART", 3)
    monkeypatch.setenv("TALLY_AUDIT_WITHIN", "4 days")
    done = audit(NAME)
    assert (done.passed, done.windows, done.stated_again) == (True, 8, 2)
    assert looked == {"table": [[0, 1, 2], [3, 4, 5], [6, 7]], "archive": [[0, 1]]}
    assert audit(NAME, deep=True).stated_again == 8
    assert looked["archive"][1:] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    ranged = audit(NAME, "2026-09-21T14:15:00Z", "2026-09-21T14:16:30Z")
    assert (ranged.windows, ranged.stated_again) == (2, 2)


def test_where_nothing_was_sealed_there_is_nothing_to_look_at(looked: dict[str, list[list[int]]]) -> None:
    assert (audit(NAME).passed, rolling(NAME).passed) == (True, True)
    assert looked == {"table": [], "archive": []}
    with pytest.raises(TallyError, match="half a range"):
        audit(NAME, "2026-09-21T14:15:00Z")


def test_what_fails_is_held_and_named_by_range(looked: dict[str, list[list[int]]]) -> None:
    seals.write([slot(0), slot(1, digest="bad"), slot(2, digest="bad"), slot(3)])
    done = audit(NAME)
    assert not done.passed and done.waiting == 2 and states() == "shhs"
    (failed,) = done.as_dict()["failed"]
    assert (failed["what"], failed["from"], failed["to"]) == ("changed", "2026-09-21T14:15:00Z", "2026-09-21T14:17:00Z")
    (told,) = incidents.opened(NAME)
    assert "--from 2026-09-21T14:15:00Z --to 2026-09-21T14:17:00Z" in told.cure
    assert not audit(NAME).passed, "it is held until it is mended"


def test_a_seal_that_changed_while_it_was_looked_at_is_left_alone() -> None:
    seals.write([slot(0, digest="bad")])
    (looked_at,) = seals.read(NAME, catalogue().pipeline(NAME).version)
    seals.write([replace(looked_at, changed_at=5)])
    assert doubted.hold(catalogue().pipeline(NAME), {looked_at: "changed"}) == []
    assert states() == "s" and not incidents.opened(NAME)


@pytest.mark.parametrize("place", ["audit.before_hold", "audit.after_hold", "audit.before_place"])
def test_killed_at_any_step_the_next_audit_finishes_the_work(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seals.write([slot(0, digest="bad"), *(slot(at) for at in range(1, 14))])

    def die(name: str) -> None:
        if name == place:
            raise Killed

    for module in (doubted, sealed_windows):
        monkeypatch.setattr(module, "failpoint", die)
    with pytest.raises(Killed):
        rolling(NAME)
    assert audits.place(NAME, catalogue().pipeline(NAME).version).slot < T0, "the part is begun again"
    for module in (doubted, sealed_windows):
        monkeypatch.setattr(module, "failpoint", lambda _: None)
    assert not rolling(NAME).passed
    assert states() == "h" + "s" * 13 and len(incidents.opened(NAME)) == 1


def test_what_the_archive_lost_is_held_by_the_hour_and_looked_at_by_halves() -> None:
    known, looks = [slot(at) for at in range(600)], [0]

    def look(some: Sequence[Seal]) -> str:
        looks[0] += 1
        return "lost 1" if any(seal.slot_start == T0 + 431 * STEP for seal in some) else ""

    found = checks.narrowed(known, look, [0])
    assert slot(431) in found and len(found) <= 60 and set(found.values()) == {"lost 1"}
    assert looks[0] < 12
    everything = checks.narrowed(known, lambda some: f"lost {len(some)}", [0])
    assert set(everything) == set(known)
    assert checks.narrowed(known, lambda _: "", [0]) == {}
