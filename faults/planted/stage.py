"""A real home on a real broker with both layers run over a story; each plant gets a copy of it, as it was made."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import oracle
from confluent_kafka.admin import AdminClient, NewTopic

from faults.planted import story
from faults.planted.story import FLUSHED, HOUR, T0, Post

TOPICS = """
from tally import topic

orders = topic(
    "{prefix}orders",
    schema="id BIGINT, ref BIGINT, shop INT NOT NULL, amount DOUBLE, cents BIGINT, price DECIMAL(12,2), at TIMESTAMP",
    event_time="at", lateness="2 minutes"{unique}, partitions=2,
)
payments = topic(
    "{prefix}payments",
    schema="id BIGINT, ref BIGINT, method STRING, amount DOUBLE, cents BIGINT, price DECIMAL(12,2), paid TIMESTAMP",
    event_time="paid", lateness="3 minutes"{unique}, partitions=2,
)
"""
MEASURES = (
    'F.count("*").alias("n"), F.sum("{side}amount").alias("total"), F.sum("{side}cents").alias("cents"), '
    'F.sum("{side}price").alias("price")'
)
SINGLE = """
from pyspark.sql import functions as F
from topics import orders

from tally import hopping, pipeline, session, tumbling


@pipeline(reads=orders, window={window}, key="shop")
def {name}(orders):
    return orders.groupBy("window", "shop").agg({measures})
"""
JOIN = """
from pyspark.sql import functions as F
from topics import orders, payments

from tally import pipeline, tumbling


@pipeline(reads=[orders, payments], window={window}, key="method", reach="5 minutes")
def {name}(orders, payments):
    pairs = orders.alias("o").join(
        payments.alias("p"), F.expr("o.ref = p.ref AND paid >= at AND paid < at + INTERVAL 5 MINUTES")
    )
    return pairs.groupBy("window", "method").agg({measures})
"""
EVENTS = """
from pyspark.sql import functions as F
from topics import orders

from tally import events, pipeline


@pipeline(reads=orders, window={window}, key="id")
def {name}(orders):
    return orders.select("window", "id", {measures})
"""
EACH = 'F.lit(1).cast("bigint").alias("n"), F.col("amount").alias("total"), "cents", "price"'
WINDOWS = {
    "tumbling": 'tumbling("1 minute")',
    "hopping": 'hopping("3 minutes", by="1 minute")',
    "session": 'session("2 minutes")',
    "join": 'tumbling("2 minutes")',
    "events": 'events("1 minute")',
}
FUNCTIONS = {"join": (JOIN, MEASURES.format(side="p.")), "events": (EVENTS, EACH)}
WITH_IDS = ("tumbling", "join", "events")
MICRO_BATCH = "90"  # records in one, so that a story is several
BEFORE, AFTER = "before", "after"  # the first seal


@contextmanager
def environment(**given: str) -> Iterator[None]:
    """Settings for as long as it lasts."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A home with one pipeline; `sent` is what its topics hold now, of which it had taken in the first `base`."""

    kind: str
    unique: bool
    prefix: str
    folder: Path
    catalogue: Path
    home: Path
    post: Post
    base: int = 0
    eaten: int = 0  # offsets of each partition that retention ate before anything was read
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}_{'u' if self.unique else 'p'}"

    @property
    def shape(self) -> oracle.Shape:
        return story.shape_of(self.kind, self.unique)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Make it the home and catalogue of this process."""
        # In a query of its own: what is planted in a checkpoint or a micro-batch's words is of that.
        more = {"TALLY_HOME": str(self.home), "TALLY_CATALOG": str(self.catalogue), "TALLY_SHARED": "false"}
        with environment(TALLY_MAX_OFFSETS_PER_TRIGGER=MICRO_BATCH, **more, **self.settings):
            yield

    def topic(self, which: str = "orders") -> str:
        return self.prefix + which

    def version(self) -> str:
        from tally.catalog.load import catalogue

        return str(catalogue().pipeline(self.name).version)

    def table(self, layer: str, which: str = "orders") -> str:
        """The path of a table on the lake of this copy."""
        lake = self.home / "lake" / layer
        if layer in ("archive", "quarantine"):
            return str(lake / self.topic(which))
        return str(lake / self.name / ("" if layer == "audit" else self.version()))

    def control(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement on the control store, past the product."""
        with closing(sqlite3.connect(self.home / "control.db")) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def copied(self, to: Path) -> Stage:
        """The same home in another folder, with a catalogue of its own."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.home, to / "home", ignore=shutil.ignore_patterns("*.sock"))
        shutil.copytree(self.catalogue, to / "catalogue", ignore=shutil.ignore_patterns("__pycache__"))
        return replace(self, folder=to, home=to / "home", catalogue=to / "catalogue")

    def truth(self, contract: story.Contract = story.DECLARED, *, base: bool = False) -> oracle.Rows:
        return story.truth(self.shape, self.post.sent[: self.base] if base else self.post.sent, contract)


def bare(folder: Path, bootstrap: str, kind: str, prefix: str, *, unique: bool, stamp: str) -> Stage:
    """A home in which nothing ran yet, with its catalogue on disk and its topics on the broker."""
    where = folder / "catalogue"
    (where / "pipelines").mkdir(parents=True)
    (where / "topics.py").write_text(TOPICS.format(prefix=prefix, unique=', unique="id"' if unique else ""))
    topics = ("orders", "payments") if kind == "join" else ("orders",)
    post = Post(bootstrap, prefix, topics)
    made = Stage(
        kind=kind, unique=unique, prefix=prefix, folder=folder, catalogue=where, home=folder / "home", post=post
    )
    text, measures = FUNCTIONS.get(kind, (SINGLE, MEASURES.format(side="")))
    text = text.format(name=made.name, window=WINDOWS[kind], measures=measures)
    (where / "pipelines" / f"{made.name}.py").write_text(text)
    options = {"retention.ms": "-1", "message.timestamp.type": stamp}
    wanted = [NewTopic(prefix + topic, story.PARTITIONS, 1, config=options) for topic in ("orders", "payments")]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # named: one that is let go answers nothing
    for done in admin.create_topics(wanted).values():
        done.result(30)
    return made


def eat(stage: Stage, count: int) -> None:
    """Delete the first records of each partition, as retention does."""
    from confluent_kafka import TopicPartition

    admin = AdminClient({"bootstrap.servers": stage.post.bootstrap})
    wanted = [TopicPartition(stage.topic(t), p, count) for t in stage.post.topics for p in range(story.PARTITIONS)]
    for done in admin.delete_records(wanted).values():
        done.result(30)


def built(
    folder: Path, bootstrap: str, kind: str, prefix: str, seed: int, *,
    unique: bool | None = None, count: int = 120, eaten: int = 0, stamp: str = "CreateTime",
    whens: Sequence[str] = (BEFORE, AFTER),
) -> dict[str, Stage]:  # fmt: skip
    """The homes that plants are put into: before the first seal, and after it. What arrives later is on the broker."""
    from faults.planted import verbs

    rng = random.Random(f"{seed} {kind}")
    stage = bare(folder, bootstrap, kind, prefix, unique=kind in WITH_IDS if unique is None else unique, stamp=stamp)
    stage.post.send([*story.begun(rng, count), *story.far(FLUSHED)])
    if eaten:
        eat(stage, eaten)
    stage = replace(stage, base=len(stage.post.sent), eaten=eaten)
    with stage.in_force():
        verbs.expect(verbs.stream(stage))
        verbs.expect(verbs.batch(stage, T0 - HOUR, FLUSHED + HOUR))
        let_go()
        made = {BEFORE: stage.copied(folder / BEFORE)}
        if AFTER in whens:
            verbs.expect(verbs.reconcile(stage))
            verbs.expect(verbs.audit(stage))
            let_go()
            made[AFTER] = stage.copied(folder / AFTER)
    stage.post.send(story.later(rng, stage.post.sent))
    stage.post.plainly([one for one in story.far(story.ENDED) if one.topic in stage.post.topics])
    return made


def let_go() -> None:
    """Close what this process holds open of a home, as the end of a verb's own process would."""
    from tally.control import store

    for engine in store.engines.values():
        engine.dispose()
    store.engines.clear()
    gc.collect()
