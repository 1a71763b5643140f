"""The words of a definition file: `topic`, `pipeline` and the windows. Declaring does nothing."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

from tally.base.duration import human, parse_duration
from tally.base.errors import DefinitionError, TallyError
from tally.catalog.cron import check_cron
from tally.catalog.schema import RESERVED, parse_schema
from tally.catalog.spec import Events, Hopping, Pipeline, Session, Topic, Tumbling, Window

NAME = re.compile(r"[a-z][a-z0-9_]*$")
# What a comparison's rows, and those of `tally read`, hold beside the key.
TAKEN = RESERVED | {"state", "revision", "batch", "stream", "replayed", "restated", "cause"}
LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}$")


def topic(
    name: str,
    *,
    schema: str,
    event_time: str,
    lateness: str | timedelta,
    unique: str | None = None,
    partitions: int = 4,
) -> Topic:
    """Declare a Kafka topic; a contract that cannot hold is refused at the author's line."""
    where = author_line()
    try:
        if not isinstance(name, str) or not TOPIC_NAME.match(name) or name in (".", ".."):
            refuse(f"{name!r} is no Kafka topic name", "name", "use letters, digits, '.', '_' and '-'")
        fields = parse_schema(schema)
        types = {f.name: f.type for f in fields}
        if event_time not in types:
            refuse(f"{event_time!r} is not in the schema", "event_time", f"one of: {', '.join(types)}")
        if types[event_time] != "TIMESTAMP":
            refuse(f"{event_time!r} is {types[event_time]}", "event_time", "declare it TIMESTAMP in the schema")
        if unique is not None and unique not in types:
            refuse(f"{unique!r} is not in the schema", "unique", f"one of: {', '.join(types)}")
        if type(partitions) is not int or partitions < 1:
            refuse(f"{partitions!r} partitions", "partitions", "at least 1")
        return Topic(
            name=name,
            schema=fields,
            event_time=event_time,
            lateness=parse_duration(lateness, field="lateness"),
            unique=unique,
            partitions=partitions,
        )
    except TallyError as error:
        raise at_line(error, where, f"topic {name}") from None


def tumbling(size: str | timedelta) -> Window:
    """Windows of one size, end to end."""
    with blamed_on(author_line(), "tumbling"):
        span = positive(size, "window")
    return Tumbling(size=span)


def hopping(size: str | timedelta, by: str | timedelta) -> Window:
    """Windows of one size, a new one every `by`."""
    with blamed_on(author_line(), "hopping"):
        span, slide = positive(size, "window"), positive(by, "by")
        if slide > span:
            cure = "make it at most the size"
            refuse(f"a slide of {human(slide)} leaves gaps between windows of {human(span)}", "by", cure)
    return Hopping(size=span, slide=slide)


def session(gap: str | timedelta) -> Window:
    """Windows of one key's activity that end when nothing came for `gap`."""
    with blamed_on(author_line(), "session"):
        span = positive(gap, "gap")
    return Session(size=span)


def events(slot: str | timedelta) -> Window:
    """No window: a row for an event, where the function gives one; rows are sealed in slots of this size."""
    with blamed_on(author_line(), "events"):
        span = positive(slot, "slot")
    return Events(size=span)


def pipeline(
    *,
    reads: Topic | Sequence[Topic],
    window: Window,
    key: str | Sequence[str],
    reach: str | timedelta | None = None,
    owner: str = "tally",
    every: str | None = None,
    deadline: str | timedelta | None = None,
    team: str | None = None,
    tier: str | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Declare the function below as a pipeline; `reach` is how far apart in time joined events may lie.

    `every`, a cron in UTC, and `deadline` stand in for the settings of the batches; by `team` and `tier` it is found.
    """
    where = author_line()

    def declare(function: Callable[..., Any]) -> Pipeline:
        name = getattr(function, "__name__", repr(function))
        try:
            topics = (reads,) if isinstance(reads, Topic) else tuple(reads)
            check_contract(name, function, topics, window)
            keys = (key,) if isinstance(key, str) else tuple(key)
            check_key(keys, topics, window)
            if len(topics) > 1 and reach is None:
                refuse("a join needs to say how far apart its events may lie", "reach", 'e.g. reach="30 minutes"')
            return Pipeline(
                name=name,
                reads=topics,
                window=window,
                key=keys,
                reach=None if reach is None else parse_duration(reach, field="reach"),
                function=function,
                file=inspect.getsourcefile(function) or "?",
                line=function.__code__.co_firstlineno,
                doc=inspect.getdoc(function) or "",
                owner=owner,
                every="" if every is None else check_cron(every, "every"),
                deadline=None if deadline is None else positive(deadline, "deadline"),
                team=label(team, "team"),
                tier=label(tier, "tier"),
            )
        except TallyError as error:
            raise at_line(error, where, name) from None

    return declare


def check_contract(name: str, function: Callable[..., Any], topics: tuple[Topic, ...], window: Window) -> None:
    """Refuse what can be refused without Spark: names, arity, kinds."""
    if not NAME.match(name):
        refuse(f"{name!r} cannot name a table and a DAG", "name", "use lower-case letters, digits and '_'")
    if not topics or not all(isinstance(t, Topic) for t in topics):
        refuse("it takes one topic or a list of topics", "reads", "reads=rides, or reads=[rides, payments]")
    if len({t.name for t in topics}) != len(topics):
        refuse("a topic is there twice", "reads", "name each topic once")
    if not isinstance(window, Window):
        refuse(f"{window!r} is no window", "window", "tumbling(...), hopping(...), session(...) or events(...)")
    if window.by_key and len(topics) > 1:
        refuse("sessions over a join are not supported", "window", "use tumbling or hopping windows, or one topic")
    if isinstance(window, Events):
        check_events(topics, window)
    if len(inspect.signature(function).parameters) != len(topics):
        refuse(
            f"the function does not take {len(topics)} DataFrame(s)", "reads", "one parameter for each topic, in order"
        )


def check_events(topics: tuple[Topic, ...], slot: Events) -> None:
    """Refuse what would leave two rows of single events that nothing tells apart."""
    if len(topics) > 1:
        refuse("rows of single events are of one topic", "reads", "name one topic, or join in windows: tumbling(...)")
    if topics[0].unique is None:
        cure = f"declare unique= in {topics[0].name}, or use tumbling(...) and groupBy"
        refuse("nothing tells the rows of its events apart: the topic has no unique id", "window", cure)
    if slot.size > topics[0].lateness:
        refuse(
            f"in slots of {human(slot.size)} an id may come twice: copies further apart than the lateness, "
            f"{human(topics[0].lateness)}, are two events",
            "slot",
            f'at most the topic\'s lateness: events("{human(topics[0].lateness)}")',
        )


def check_key(keys: tuple[str, ...], topics: tuple[Topic, ...], window: Window) -> None:
    """Refuse an empty key, and for sessions one that is no column: whose sessions they are must be known per event."""
    if not keys or not all(isinstance(name, str) and name for name in keys):
        refuse(f"{keys!r} names no column", "key", 'e.g. key="vendor_id", or key=["zone", "vendor_id"]')
    taken = [name for name in keys if name.lower() in TAKEN or name.startswith("_")]
    if taken:
        refuse(f"{taken[0]!r} is a name Tally uses itself beside the key", "key", "give the column another name")
    unknown = [name for name in keys if name not in topics[0].columns]
    if window.by_key and unknown:
        refuse(
            f"a session's key must be a column of {topics[0].name}, and {unknown[0]!r} is none",
            "key",
            f"one of: {', '.join(topics[0].columns)}",
        )


def label(word: str | None, field: str) -> str:
    """What a pipeline is found by; it becomes a tag, so it is short and has no blanks."""
    if word is None:
        return ""
    if not isinstance(word, str) or not LABEL.match(word):
        refuse(f"{word!r} is no name of a {field}", field, "up to 64 letters, digits, '.', '_' and '-'")
    return word


def positive(size: str | timedelta, field: str) -> timedelta:
    span = parse_duration(size, field=field)
    if span <= timedelta(0):
        refuse("it must be longer than nothing", field, 'e.g. "1 minute"')
    return span


def refuse(message: str, field: str, cure: str) -> NoReturn:
    raise TallyError(message, field=field, cure=cure)


@contextmanager
def blamed_on(where: str, subject: str) -> Iterator[None]:
    """Say a refusal with the author's line."""
    try:
        yield
    except TallyError as error:
        raise at_line(error, where, subject) from None


def at_line(error: TallyError, where: str, subject: str) -> DefinitionError:
    return DefinitionError(error.message, pipeline=subject, field=error.field, cure=error.cure, where=where)


def author_line() -> str:
    """file:line of the nearest caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
