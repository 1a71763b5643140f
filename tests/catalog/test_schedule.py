"""When batches are due: as a pipeline declares or the settings say, each at a minute of its own."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import definitions
import pytest

from tally.catalog import cron as crons
from tally.catalog import schedule
from tally.catalog.load import load


@pytest.fixture(autouse=True)
def no_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TALLY_BATCH_EVERY", "TALLY_DEADLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("cron", "at"),
    [
        ("0 * * * *", "7 * * * *"),
        ("0 */6 * * *", "7 */6 * * *"),
        ("0 6 * * 1-5", "7 6 * * 1-5"),
        ("@hourly", "7 * * * *"),
        ("@daily", "7 0 * * *"),
        ("*/5 * * * *", "*/5 * * * *"),  # less than an hour
        ("0,30 * * * *", "0,30 * * * *"),
        ("30 6 * * *", "30 6 * * *"),  # somebody chose it
    ],
)
def test_a_full_hour_is_spread_and_any_other_minute_is_taken_at_its_word(
    cron: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crons, "minute_of", lambda _: 7)
    assert crons.spread(cron, "trips") == at


def test_two_hundred_pipelines_are_due_all_over_the_hour_and_at_the_same_minute_in_each_process() -> None:
    names = [f"pipeline_{number}" for number in range(200)]
    minutes = [crons.minute_of(name) for name in names]
    assert all(0 <= minute < 60 for minute in minutes)
    assert max(map(minutes.count, minutes)) <= 12, "a sixtieth of them is 3.3"
    script = f"from tally.catalog.cron import minute_of; print([minute_of(n) for n in {names!r}])"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(minutes)


def test_a_pipeline_s_own_words_win_over_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load(definitions.write(tmp_path / "plain")).pipelines["demand"]
    assert schedule.every(plain) == f"{crons.minute_of('demand')} * * * *"
    assert schedule.deadline(plain) == timedelta(hours=1)
    folder = definitions.write(tmp_path / "own")
    definitions.edit(folder, 'key="zone"', 'key="zone", every="*/10 * * * *", deadline="5 minutes", team="a", tier="b"')
    own = load(folder).pipelines["demand"]
    monkeypatch.setenv("TALLY_BATCH_EVERY", "*/2 * * * *")
    monkeypatch.setenv("TALLY_DEADLINE", "")
    assert (schedule.every(plain), schedule.deadline(plain)) == ("*/2 * * * *", None)
    assert (schedule.every(own), schedule.deadline(own)) == ("*/10 * * * *", timedelta(minutes=5))
    assert (own.team, own.tier) == ("a", "b")
    assert own.version == plain.version, "when it runs, and whose it is, means nothing for the numbers"
