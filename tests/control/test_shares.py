"""Pipelines that share their topic's stream have its micro-batches as their own, as far as their tables hold them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from tally.base.settings import settings
from tally.control import ledger, shares, tables
from tally.control.ledger import HELD, NEAR, MicroBatch
from tally.control.shares import Share
from tally.control.store import alone, engines, store

STREAM = ("topic sales", "shared")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


def entry(batch: int, place: tuple[str, str] = STREAM, generation: int = 1, ids: str = NEAR) -> MicroBatch:
    ranges = {"sales": {0: (batch, batch + 1)}}
    return MicroBatch(
        pipeline=place[0], version=place[1], generation=generation, batch=batch, ranges=ranges,
        late_watermark=batch, watermark=batch + 1, rows=0 if place == STREAM else 3, delta_version=-1,
        committed_at=100 + batch, ids=ids,
    )  # fmt: skip


def share(batch: int, name: str = "p", rows: int = 3) -> Share:
    return Share(
        pipeline=name, version="v1", generation=1, topic="sales", batch=batch, rows=rows, delta_version=10 + batch,
        committed_at=1000 + batch,
    )  # fmt: skip


def mine(batch: int, newest: int, name: str = "p") -> MicroBatch:
    """What the ledger is to tell of a pipeline's micro-batch, of which the newest one is that."""
    own = replace(entry(batch), pipeline=name, version="v1")
    return replace(own, delta_version=10 + batch, committed_at=1000 + batch) if batch == newest else own


def test_a_pipeline_has_its_topic_s_micro_batches_up_to_its_own_newest() -> None:
    ledger.record(entry(batch) for batch in range(6))
    for batch in range(4):
        shares.advance(share(batch))
    expected = [mine(batch, 3) for batch in range(4)]
    assert ledger.read("p", "v1") == expected and ledger.newest("p", "v1") == expected[-1]
    assert ledger.read("p", "v1", 1, first=1, last=2) == expected[1:3] and ledger.read("p", "v1", 2) == []
    assert [ledger.at_or_after("p", "v1", 1, batch) for batch in (2, 3, 4)] == [expected[2], expected[3], None]
    assert ledger.last_where(expected[-1], lambda batch: batch.watermark <= 2) == expected[1]
    assert ledger.applied("p", "v1") == (4, 12)
    assert ledger.spans("p", "v1") == [(expected[0], expected[3])]
    assert ledger.read("other", "v1") == [] and ledger.newest("p", "v2") is None


def test_one_that_took_part_later_has_none_from_before() -> None:
    ledger.record(entry(batch) for batch in range(6))
    for batch in (2, 3, 4):
        shares.advance(replace(share(batch), since=2))
    expected = [mine(batch, 4) for batch in range(2, 5)]
    assert ledger.read("p", "v1") == expected and ledger.read("p", "v1", 1, first=0, last=3) == expected[:2]
    assert [ledger.at_or_after("p", "v1", 1, batch) for batch in (0, 3)] == expected[:2]
    assert ledger.last_where(expected[-1], lambda batch: batch.batch < 1) is None
    assert ledger.applied("p", "v1")[0] == 3 and ledger.spans("p", "v1") == [(expected[0], expected[-1])]


def test_an_own_generation_after_a_shared_one_is_the_newer() -> None:
    ledger.record([entry(0), entry(1), entry(0, ("p", "v1"), 2, HELD)])
    shares.advance(share(1))
    found = ledger.read("p", "v1")
    assert [(one.generation, one.batch) for one in found] == [(1, 0), (1, 1), (2, 0)]
    assert ledger.newest("p", "v1") == found[-1] and ledger.applied("p", "v1") == (3, 6)
    assert ledger.spans("p", "v1") == [(found[0], found[1]), (found[2], found[2])]


def test_generations_that_share_have_a_share_each_with_an_own_one_between() -> None:
    ledger.record([*(entry(batch) for batch in range(4)), entry(0, ("p", "v1"), 2, HELD)])
    for batch in range(3):
        shares.advance(share(batch))
    for batch in (1, 2):
        shares.advance(replace(share(batch), generation=3, since=1))
    found = ledger.read("p", "v1")
    assert [(one.generation, one.batch) for one in found] == [(1, 0), (1, 1), (1, 2), (2, 0), (3, 1), (3, 2)]
    assert ledger.newest("p", "v1") == found[-1] and ledger.read("p", "v1", 3) == found[-2:]
    assert (shares.of("p", "v1"), shares.of("p", "v1", 2)) == (replace(share(2, rows=6), generation=3, since=1), None)
    assert shares.of("p", "v1", 1) == share(2, rows=9)
    assert ledger.applied("p", "v1") == (6, 9 + 3 + 6)
    assert ledger.spans("p", "v1") == [(found[0], found[2]), (found[4], found[5]), (found[3], found[3])]


def test_the_same_micro_batch_again_or_an_older_one_changes_nothing() -> None:
    for batch in (0, 1, 1, 0):
        shares.advance(share(batch))
    assert shares.of("p", "v1") == share(1, rows=6)


def test_a_store_of_before_keeps_what_it_says_of_shared_streams(tmp_path: Path) -> None:
    before = [entry(batch, (name, "v1")) for name, count in (("p", 4), ("q", 2)) for batch in range(count)]
    before = [replace(one, delta_version=20 + one.batch) for one in before]
    own = [entry(batch, ("r", "v1"), ids=HELD) for batch in range(3)]
    made = store()
    with alone(made) as connection:
        connection.execute(sa.text("DROP TABLE shares"))
        connection.execute(sa.text("DROP TABLE reached"))
        connection.execute(sa.text("ALTER TABLE ledger DROP COLUMN first"))
        connection.execute(sa.text("ALTER TABLE streams DROP COLUMN took"))
        connection.execute(sa.text("UPDATE tally_revision SET version_num = '0002'"))
    rows = [asdict(one) for one in (*before, *own, entry(3))]  # of the topic itself, one was all that a repair left
    with made.begin() as connection:
        columns = [column for column in tables.ledger.c if column.name != "first"]
        old = sa.table("ledger", *(sa.column(column.name, column.type) for column in columns))
        connection.execute(sa.insert(old), [{c.name: row[c.name] for c in columns} for row in rows])
    engines.pop(settings().control_url).dispose()
    assert [one.batch for one in ledger.read(*STREAM)] == [0, 1, 2, 3]
    assert ledger.read("r", "v1") == own
    for name, count in (("p", 4), ("q", 2)):
        theirs = [one for one in before if one.pipeline == name]
        found = ledger.read(name, "v1")
        assert found[-1] == replace(theirs[-1], rows=0) and len(found) == count
        plain = {"rows": 0, "delta_version": -1, "committed_at": 0}
        assert [replace(one, **plain) for one in found] == [replace(one, **plain) for one in theirs]
        assert ledger.applied(name, "v1") == (count, 3 * count)
    names = sa.select(tables.ledger.c.pipeline).distinct()
    with store().connect() as connection:
        assert sorted(connection.execute(names).scalars()) == ["r", "topic sales"]
