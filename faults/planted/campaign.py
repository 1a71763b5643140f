"""Carries plants out, one after the other, in one Spark session and on one broker."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

from faults.planted import stage as stages
from faults.planted import verbs, verdict
from faults.planted.catalog import CUT
from faults.planted.plant import Plant
from faults.planted.stage import Stage, environment, let_go


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A plant and what became of it."""

    name: str
    plant: Plant
    verdict: verdict.Verdict
    seconds: float
    said: tuple[str, ...] = ()


@contextmanager
def running(folder: Path | None = None) -> Iterator[tuple[Path, str]]:
    """A folder, and a broker of its own with a Spark session in this process, gone at the end."""
    from tally.embedded import broker
    from tally.embedded.broker_files import free_port
    from tally.lake.session import session

    where = folder or Path(mkdtemp(prefix="planted."))
    ours = {"TALLY_HOME": str(where / "broker"), "TALLY_KAFKA_PORT": str(free_port()), "TALLY_KAFKA_HEAP": "256m"}
    try:
        with environment(**ours):
            bootstrap = broker.up().bootstrap
            session("planted", memory="3g")  # each story leaves some in it: in 2 GiB the fiftieth had no room
            with environment(TALLY_KAFKA=bootstrap):
                yield where, bootstrap
    finally:
        with environment(**ours):
            broker.down()
        if folder is None:
            shutil.rmtree(where, ignore_errors=True)


def build(folder: Path, bootstrap: str, kind: str, seed: int) -> dict[str, Stage]:
    """Both homes of a kind, before the first seal and after it."""
    prefix = f"{kind.replace(' ', '')}{seed}."
    if kind == CUT:
        return stages.built(folder / "cut", bootstrap, "tumbling", prefix, seed, eaten=8)
    return stages.built(folder / kind, bootstrap, kind, prefix, seed)


def carry_out(name: str, plant: Plant, made: Stage, folder: Path, seed: int) -> Outcome:
    """Copy the home, harm it, run the schedule, and say what came of it."""
    began = time.monotonic()
    # A folder of its own: what Spark remembers of a table, it remembers by its path.
    where = folder / re.sub(r"\W+", "_", name)
    copy = replace(made.copied(where), settings=dict(plant.settings))
    try:
        with copy.in_force():
            still = plant.harm(copy, random.Random(f"{seed} {name}"))
            let_go()
            said = verbs.schedule(copy, deep=plant.deep)
            found = verdict.reached(copy, said, plant.contract, None if still is None else not still())
    except Exception as fault:
        return Outcome(name=name, plant=plant, verdict=verdict.failed(fault), seconds=0.0)
    finally:
        with copy.in_force():
            let_go()
            forget_tables()
        shutil.rmtree(copy.folder, ignore_errors=True)
    seconds = round(time.monotonic() - began, 1)
    return Outcome(name=name, plant=plant, verdict=found, seconds=seconds, said=tuple(map(str, said)))


def forget_tables() -> None:
    """Have Spark forget the tables of a copy: of a hundred of them it would remember each for an hour."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def campaign(folder: Path, bootstrap: str, plants: dict[str, Plant], seed: int) -> Iterator[Outcome]:
    """Every plant, each in a copy of its kind's home, which is made when the first of them comes."""
    made: dict[str, dict[str, Stage]] = {}
    for name, plant in plants.items():
        if plant.kind not in made:
            made[plant.kind] = build(folder, bootstrap, plant.kind, seed)
        yield carry_out(name, plant, made[plant.kind][plant.when], folder, seed)


def table(outcomes: Sequence[Outcome]) -> str:
    """As it goes into docs/reliability.md."""
    lines = ["| place | planted | kind | seal | caught by | numbers | words |", "|---|---|---|---|---|---|---|"]
    for one in outcomes:
        plant, found = one.plant, one.verdict
        name = one.name.removesuffix(", sealed").removesuffix(f", {plant.kind}")
        numbers = "**false**" if found.wrong else "right"
        words = (found.wrong[0] + " / " if found.wrong else "") + found.words
        brief = re.sub(r"\S*/(copy|home|planted)\S*", "…", words.replace("|", "/").replace("\n", " "))[:180]
        lines.append(f"| {plant.where} | {name} | {plant.kind} | {plant.when} | {found.by} | {numbers} | {brief} |")
    return "\n".join(lines)
