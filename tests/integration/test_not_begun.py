"""A pipeline that could never be reconciled is not begun: refused with line and cure, and nothing written."""

from __future__ import annotations

from pathlib import Path

import bespoke
import pytest

from tally.base.errors import DefinitionError
from tally.control import incidents, streams
from tally.lake import delta
from tally.speed.driver import Driver

TOPIC = 'visits = topic("visits_not_begun", schema="page STRING, at TIMESTAMP", event_time="at", lateness="1 minute")\n'
PIPELINE = """
@pipeline(reads=visits, window=tumbling("1 minute"), key="at")
def {name}(visits):
    return visits.groupBy("window", "at").agg({measure})
"""


@pytest.mark.usefixtures("spark")
def test_only_the_one_that_could_not_be_reconciled(
    tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "pages": PIPELINE.format(name="pages", measure='F.max("page").alias("page")'),
        "entries": PIPELINE.format(name="entries", measure='F.first("page").alias("page")'),
    }
    home = bespoke.make(tmp_path, broker, monkeypatch, TOPIC, texts)
    home.send("visits_not_begun", {"page": "a", "at": bespoke.T0})
    (failed,) = Driver(["entries", "pages"], until_caught_up=True).run()
    assert isinstance(failed, DefinitionError) and failed.pipeline == "entries" and "first" in str(failed)
    assert "entries.py:" in str(failed.where)
    assert delta.version(home.path("speed", "entries")) == -1
    assert delta.version(home.path("speed", "pages")) > 0
    (told,) = [one for one in incidents.opened() if one.pipeline == "entries"]
    assert told.cause == "stream refused" and told.cure == failed.cure
    shown = streams.stream("entries")
    assert shown is not None and "first" in shown["reason"]
    out = capfd.readouterr()
    assert "Traceback" not in out.out + out.err and "it stays stopped" in out.out and "goes on" not in out.out
    monkeypatch.setenv("TALLY_SETTLE", "0 seconds")
    home.send("visits_not_begun", {"page": "z", "at": bespoke.T0 + 60 * bespoke.MINUTE})
    home.stream("pages")
    home.batch("pages")
    assert home.reconcile("pages")["verdict"] == "reconciled"
    assert [row["page"] for row in home.served("pages") if row["state"] == "sealed"] == ["a"]
