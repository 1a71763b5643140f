"""What a task graph is made of, as plain frozen data: tasks, their order, their schedule, and who is first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

# Who is first where several wait for a worker, or for a slot of one pool. A task counts for as many times its DAG's
# weight as it stands deep in it, so that what is begun is ended first. A stream that is down waits for no batch, and a
# batch of now for nothing that a person wants of long ago. An archive is after comparisons, or four pipelines whose
# tasks take as long as their interval would seal nothing, and before restatements, which have more to state with it: by
# one for each pipeline that reads it, so that the archive which most wait for comes first.
URGENT, FEEDING, LIVE, ANY_TIME = 1000, 20, 10, 1
MOST_READERS = 9


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a DAG runs: at the end of each cron interval, at each cron tick, or when its watcher in the triggerer says

    so, with a slow cron beside it in case the watcher is dead. The last missed tick of `archive` is made up for.
    """

    kind: Literal["interval", "cron", "archive", "watched"]
    of: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One task: a Spark application with its arguments, a Python step with its keywords, or a wait without a worker.

    Arguments and keywords may be templates.
    """

    id: str
    kind: Literal["spark", "python", "wait"]
    runs: str = ""  # spark: a file of spark/; python: a function of tally.orchestration.steps
    first: str = ""  # spark: a function of steps that is asked first, and says whether that has done it without Spark
    doc: str
    after: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # spark; an argument that renders empty is left out
    keywords: Mapping[str, str] = field(default_factory=dict)  # python
    archives: tuple[str, ...] = ()  # wait: the topics whose archives are to reach `until`
    until: str = ""  # wait: a moment, ISO 8601
    inlets: tuple[str, ...] = ()
    outlets: tuple[str, ...] = ()
    alone: bool = False  # one of it at a time, in whatever run: others would wait at its table's lock, in a slot each
    retries: int = 2
    timeout: timedelta = timedelta(hours=2)
    per_item_of: str = ""  # the task whose list this one is repeated over, together with all others that name it
    group: str = ""  # what they are called together
    called_by: str = ""  # the field of an item that its tasks are called by
    tells: bool = False  # whether its answer of no opens an incident itself
    whatever: bool = False  # runs whatever those before it came to, and the run's colour is theirs alone


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One DAG."""

    dag_id: str
    title: str
    doc: str
    schedule: Schedule | None
    tags: tuple[str, ...]
    nodes: tuple[Node, ...]
    owner: str = "tally"
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # JSON schemas, with their default
    timeout: timedelta = timedelta(hours=6)
    at_once: int = 1  # runs that may be under way beside each other
    weight: int = ANY_TIME
    pipeline: str = ""  # whose runs they are, where they are one's
    deadline: timedelta | None = None  # a run that is not over so long after it was due opens an incident

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        return tuple((before, node.id) for node in self.nodes for before in node.after)
