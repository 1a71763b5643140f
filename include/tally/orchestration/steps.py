"""The Python steps of the DAGs: each says in its last line what it saw and did, and imports what it needs itself.

None starts a Spark session. Those of the streams DAG alone need Airflow: for its notifiers, and what it alone knows.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tally.base.duration import iso, parse_duration, parse_instant, to_millis
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.safe_text import printable, quoted
from tally.base.settings import settings

if TYPE_CHECKING:
    from tally.catalog.spec import Pipeline

FORM_NAMES = {"chunk": "chunk_hours"}  # what a form calls a field that goes by another name elsewhere
HOURS = re.compile(r"([0-9]{1,3})(?:\.0)?")  # JSON's 24.0 is a whole number too


class NothingToDo(Exception):
    """The step has nothing to work on, and neither have those after it."""


def act() -> None:
    """Have the streams' driver alive where one is wanted, and say when nobody watches over it.

    Without a watcher nobody orders again when a start that has to wait is due: the step waits for it.
    """
    from tally.control import incidents
    from tally.orchestration.failure import of_streams
    from tally.supervise.ensure_driver import ensure_driver
    from tally.supervise.policy import look
    from tally.supervise.watch import check_watcher, is_watched

    print(check_watcher())
    print(ensure_driver())
    seen = look()
    if not is_watched() and not seen.lives and seen.retry_in > 0:
        time.sleep(seen.retry_in / 1000 + 0.1)
        print(ensure_driver())
    incidents.close("", of_streams("act"), done="it looks after the driver again")


def tell() -> None:
    """Say how each stream is, as `tally status` does, and tell people of incidents; a channel that fails is said."""
    from tally.control import incidents
    from tally.orchestration.failure import of_streams
    from tally.orchestration.notify import notifiers
    from tally.supervise.send_notices import send_notices

    trouble: list[Exception] = []
    for look in (say_states, judge_freshness, judge_sealing):
        try:
            look()
        except Exception as error:  # a catalogue that does not load keeps nobody from hearing of an incident
            trouble.append(error)
    if not trouble:
        incidents.close("", of_streams("tell"), done="it is told again how the streams are")
    for line in send_notices(notifiers()):
        print(line)
    if trouble:
        raise trouble[0]


def say_states() -> None:
    from tally.supervise.status import diagnose_all

    for health in diagnose_all():
        print(f"{health.pipeline}: {health.state}: {health.reason}; next: {health.next_step}")


def judge_freshness() -> None:
    from tally.supervise import status

    for name in status.judge_freshness():
        print(f"{name}: records have waited for longer than {settings().freshness}")


def judge_sealing() -> None:
    from tally.orchestration.ask import stands_in_the_way
    from tally.supervise import sealing

    for name in sealing.judge_sealing(stands_in_the_way):
        print(f"{name}: {sealing.STOPPED}: tally incidents {name}")


def definition(pipeline: str) -> None:
    """Load a pipeline's definition, which could not be loaded when its DAG was made; AnswerIsNo with what is wrong."""
    from tally.catalog.load import definitions

    try:
        definitions().pipeline(pipeline)
    except TallyError as fault:
        raise AnswerIsNo(
            fault.message, pipeline=fault.pipeline, field=fault.field, where=fault.where, cure=fault.cure
        ) from None
    print(f"{pipeline}: its definition loads again; its DAG has its own tasks within a minute or two")


def wish(pipeline: str, action: str, why: str, by: str, asked: str = "") -> None:
    """Write down what a person wants of a stream, and return once it has happened, where a driver lives.

    Unknown pipelines and actions, no reasons, and a wish that a later one has overtaken are refused.
    """
    from tally.control.streams import asked_at, check_reason
    from tally.orchestration.forms import ACTIONS
    from tally.supervise.follow import follow

    if action not in ACTIONS:
        raise AnswerIsNo(f"no such action: {quoted(action)}", field="action", cure=f"one of {', '.join(ACTIONS)}")
    name = known(pipeline).name
    with for_good():
        check_reason(why)
    with asked_at(to_millis(parse_instant(asked, field="run_after")) if asked else None):
        getattr(import_module("tally.supervise.desired_state"), action)(name, by=by, why=why)
    said = f"{name}: {action}, by {by}" + (f": {why}" if why else "")
    print(printable(f"{said}; {follow(name, action)}"))


def check_form(conf: Mapping[str, Any], form: Collection[str]) -> None:
    """Airflow takes any field of a run's configuration; one that the DAG's form lacks is a slip of whoever wrote it."""
    unknown = sorted(set(conf) - set(form))
    if unknown:
        cure = f"the form has: {', '.join(sorted(form))}" if form else "this DAG has no form: trigger it without any"
        raise AnswerIsNo("no such field", field=", ".join(map(quoted, unknown)), cure=cure)


def known(name: str, field: str = "pipeline") -> Pipeline:
    """The pipeline of that name; one that the form does not offer will not be there when it is tried again."""
    from tally.catalog.load import catalogue

    with for_good(field):
        return catalogue().pipeline(name)


@contextmanager
def for_good(field: str = "") -> Iterator[None]:
    """Turn wrong use, which does not pass by itself, into an answer of no, with the name that the form has for it."""
    try:
        yield
    except TallyError as error:
        if error.exit_code != 2 or error.field == "TALLY_KAFKA":
            raise
        named = field or FORM_NAMES.get(error.field or "", error.field)
        raise AnswerIsNo(error.message, pipeline=error.pipeline, field=named, cure=error.cure) from None


def plan(pipeline: str, since: str, until: str, chunk_hours: str, dry_run: str) -> list[dict[str, str]]:
    """The chunks of a backfill; none for a dry run. Bad ranges, sizes and lost records are refused."""
    from tally.jobs.backfill import plan as make

    whole = HOURS.fullmatch(chunk_hours)
    if not whole:
        raise AnswerIsNo(f"{quoted(chunk_hours)} is no number of hours", field="chunk_hours", cure="1 to 744")
    if dry_run not in ("True", "False"):
        raise AnswerIsNo(f"{quoted(dry_run)} is neither true nor false", field="dry_run", cure="true or false")
    known(pipeline)
    with for_good():
        made = make(pipeline, since, until, timedelta(hours=int(whole[1])))
    print(made)
    made.require()
    if dry_run == "True":
        print("dry run: nothing is done")
        return []
    return [chunk.as_dict() for chunk in made.chunks]


def archive(topic: str) -> bool:
    """Say that nothing is new of a topic, if that is so; whether it is."""
    from tally.jobs.archive import without_spark

    said = without_spark(topic)
    print(said or "there is something to archive: Spark does that")
    return said is not None


def choose(pipelines: str, since: str, until: str) -> list[dict[str, str]]:
    """The pipelines of a form, one item each; unknown ones, and what is no range, are refused."""
    try:
        names = json.loads(pipelines)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or len({*map(str, names)}) < len(names):
        raise AnswerIsNo(f"{quoted(pipelines)} is no list of pipelines", field="pipelines", cure="choose one or more")
    chosen = [known(str(name), "pipelines").name for name in names]
    if bool(since) != bool(until):
        raise AnswerIsNo("half a range", field="from", cure="give both, or neither for all that is due")
    if since:
        with for_good():
            start, end = parse_instant(since, field="from"), parse_instant(until, field="to")
        if start >= end:
            raise AnswerIsNo(f"{iso(start)} is not before {iso(end)}", field="from", cure="give from < to")
    print(f"{since} to {until} of" if since else "all that is closed and not sealed of", ", ".join(chosen))
    return [{"pipeline": name} for name in chosen]


def compare(*arguments: str) -> bool:
    """Compare as spark/reconcile.py does by these arguments, if that takes no JVM; whether it is done."""
    from tally.jobs.compare import without_spark

    said = without_spark(arguments)
    print(said or "only Spark can tell: it is asked now")
    return said is not None


def judge(pipeline: str, ticket: str) -> None:
    """Judge this run's comparison. AnswerIsNo with the verdict when windows are held; the rest is sealed."""
    logging.getLogger("great_expectations").setLevel(logging.ERROR)  # it tells of its own workings, hundreds of lines
    from tally.reconcile.comparison import HELD
    from tally.reconcile.judge import judge as verdict_on
    from tally.reconcile.seal import seal as put_seals

    number = compared(pipeline, ticket)
    judgement = verdict_on(number)
    if judgement.verdict == HELD:
        print(put_seals(number))  # here, because no task comes after a red one
        raise AnswerIsNo(
            str(judgement), cure=f"read the rows, mend the cause, restate the range; then {pipeline} is judged again"
        )
    print(judgement)


def seal(pipeline: str, ticket: str) -> None:
    """Seal the closed windows of this run's comparison."""
    from tally.reconcile.seal import seal as put_seals

    print(f"{pipeline}: {put_seals(compared(pipeline, ticket))}")


def prune_control_store() -> None:
    """Drop comparisons older than the setting that no slot refers to."""
    from tally.control.runs import prune_reconciliations

    keep = parse_duration(settings().keep_reconciliations, field="TALLY_KEEP_RECONCILIATIONS")
    dropped = prune_reconciliations(to_millis(datetime.now(UTC) - keep))
    print(f"dropped {dropped} comparisons that hold no window and are older than {settings().keep_reconciliations}")


def compared(pipeline: str, ticket: str) -> int:
    """The id of the comparison that this run's `compare` made; NothingToDo when no window was there to compare."""
    from tally.control.runs import by_ticket

    rows = [row for row in by_ticket(ticket) if row.pipeline == pipeline]
    if not rows or rows[-1].from_ms == rows[-1].to_ms:
        raise NothingToDo(f"{pipeline}: no window is closed and not sealed")
    return rows[-1].id
