"""A few of the campaign's plants, and that its judge sees a false number; `make faults` carries all of them out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from faults.planted import stage as stages
from faults.planted import story, verdict
from faults.planted.campaign import carry_out
from faults.planted.catalog import PLANTS
from faults.planted.stage import Stage, environment
from faults.planted.story import MINUTE, T0, Post, Sent

# Both sides of the first seal, and a place each: what the stream, the batch, the archive and the store hold.
CHOSEN = {
    "null, tumbling": "held",
    "an event doubled, tumbling, sealed": "refused",
    "another digest, tumbling, sealed": "held",
    "a row nobody made, session": "held",
    "an event counted twice, session, sealed": "held",
    "an ingest gone, session, sealed": "healed",
}


class Homes(dict[str, dict[str, Stage]]):
    """The stages of each kind of window, built for the first plant that needs them."""

    def __init__(self, folder: Path, broker: str) -> None:
        super().__init__()
        self.folder, self.broker = folder, broker

    def __missing__(self, kind: str) -> dict[str, Stage]:
        self[kind] = stages.built(self.folder / kind, self.broker, kind, f"planted.{kind}.", 3, count=72)
        return self[kind]


@pytest.fixture(scope="module")
def homes(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    folder = tmp_path_factory.mktemp("planted")
    with environment(TALLY_KAFKA=broker):
        yield Homes(folder, broker)


# Sessions need a world of their own.
LONG = {name for name in CHOSEN if PLANTS[name].kind == "session"} | {"another digest, tumbling, sealed"}


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.long] * (one in LONG)) for one in CHOSEN])
def test_a_plant_is_caught(homes: Homes, tmp_path: Path, name: str) -> None:
    plant = PLANTS[name]
    made = homes[plant.kind][plant.when]
    found = carry_out(name, plant, made, tmp_path, 3).verdict
    assert (found.by, found.wrong) == (CHOSEN[name], [])
    assert found.by == "healed" or made.name in found.words or made.topic() in found.words


def served(minute: int, shop: int, n: int, total: float, state: str = "sealed") -> dict[str, Any]:
    start, end = (datetime.fromtimestamp((T0 + m * MINUTE) / 1000, UTC) for m in (minute, minute + 1))
    exact = 2.5 if math.isnan(total) else total
    values = {"n": n, "total": total, "cents": round(exact * 100), "price": Decimal(str(exact))}
    return {"window_start": start, "window_end": end, "shop": shop, "state": state, **values}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([served(0, 1, 1, 2.5), served(1, 1, 1, 4.0)], []),
        ([served(0, 1, 2, 2.5), served(1, 1, 1, 4.0)], ["sealed with (2, 2.5"]),
        ([served(0, 1, 1, float("nan")), served(1, 1, 1, 4.0)], ["sealed with (1, nan"]),
        ([served(0, 1, 2, 2.5, "held"), served(1, 1, 1, 4.0)], []),
        ([served(0, 1, 1, 2.5)], ["(1, 4.0, 400, Decimal('4.0')) is missing"]),
        ([served(0, 1, 1, 2.5), served(1, 1, 1, 4.0), served(1, 2, 1, 4.0)], ["[+1.00 min, 2] is sealed with"]),
        ([served(0, 1, 1, 2.5), served(1, 1, 1, 4.0), served(1, 1, 1, 4.0)], ["is served 2 times"]),
        ([served(0, 1, 1, 2.5), served(1, 1, 1, 4.0, "closed")], ["was not judged"]),
    ],
)
def test_the_judge_sees_what_is_false(tmp_path: Path, rows: list[dict[str, Any]], says: list[str]) -> None:
    post = Post("", "", ("orders",))
    for minute, amount in ((0, 2.5), (1, 4.0)):
        body = {"id": minute, "ref": minute, "shop": 1, "amount": amount, "at": T0 + minute * MINUTE}
        post.sent.append(Sent(topic="orders", partition=0, offset=minute, broker_time=T0 + 2 * MINUTE, body=body))
    aborted = {"id": 9, "ref": 9, "shop": 1, "amount": 1.0, "at": T0}
    post.sent.append(Sent(topic="orders", partition=0, offset=7, broker_time=T0, body=aborted, committed=False))
    stage = Stage(
        kind="tumbling", unique=True, prefix="", folder=tmp_path, catalogue=tmp_path, home=tmp_path, post=post
    )
    seals = dict.fromkeys((T0, T0 + MINUTE), "sealed")
    found = verdict.differences(stage, rows, seals, story.DECLARED, stated=True, heard=False)
    assert len(found) == len(says) and all(part in line for part, line in zip(says, found, strict=True))
