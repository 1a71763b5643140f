"""A micro-batch that the table already holds writes nothing; one that is older than the table is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tally.base.errors import AnswerIsNo
from tally.control import ledger
from tally.control.leases import Lease
from tally.control.ledger import MicroBatch
from tally.speed import commit
from tally.speed.commit import Target

HELD = MicroBatch(
    pipeline="p", version="v1", generation=2, batch=7, ranges={}, late_watermark=0, watermark=0, rows=1,
    delta_version=9, committed_at=0,
)  # fmt: skip


@dataclass
class Named:
    name: str = "p"
    version: str = "v1"


class Unasked:
    """Stands for the session that runs the query: what writes nothing has nothing to ask it."""

    @property
    def streams(self) -> None:
        raise AssertionError("it was asked for its queries")


def target(generation: int) -> Target:
    lease = Lease(name="speed/p/v1", epoch=1, sure=True)
    return Target(spark=Unasked(), pipeline=Named(), generation=generation, lease=lease)  # type: ignore[arg-type]


class Rows:
    """Stands for a frame: tells what is written where."""

    sparkSession = None

    def __init__(self) -> None:
        self.write = self
        self.saved: list[str] = []

    def format(self, name: str) -> Rows:
        self.saved.append(name)
        return self

    def mode(self, _: str) -> Rows:
        return self

    def save(self) -> None:
        pass


@pytest.fixture(autouse=True)
def table_at_seven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "newest", lambda *_: HELD)


def test_the_newest_batch_again_is_run_into_nothing() -> None:
    rows = Rows()
    assert commit.write(rows, 7, target(2)) is HELD
    assert rows.saved == ["noop"]


def test_a_batch_that_leaves_some_out_is_refused() -> None:
    rows = Rows()
    for batch, generation, reached in ((9, 2, "7"), (1, 3, "7")):
        with pytest.raises(AnswerIsNo, match=f"micro-batch {batch}, the table only at {reached}") as refused:
            commit.write(rows, batch, target(generation))
        assert refused.value.cure
    assert rows.saved == []


def test_an_older_batch_is_refused_and_says_what_to_put_back() -> None:
    rows = Rows()
    with pytest.raises(AnswerIsNo, match="micro-batch 5, the table already at 7") as refused:
        commit.write(rows, 5, target(2))
    assert "newest checkpoint" in (refused.value.cure or "")
    assert rows.saved == []
