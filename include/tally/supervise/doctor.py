"""Everything that one stream needs, looked at once: what is good, what is wrong, and the cure. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import sqlalchemy as sa

from tally.base.duration import from_millis, iso
from tally.base.errors import TallyError
from tally.base.lines import lines_of
from tally.base.safe_text import printable
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import incidents, streams
from tally.control.store import now_ms, store
from tally.host import driver_files, driver_log, lock, process
from tally.lake import memory
from tally.sources import kafka
from tally.speed.start import agreement, stored_state
from tally.speed.start.agreement import Finding
from tally.supervise.policy import SILENCE_MS

GIB = 2**30
# A micro-batch and a batch need some room at once; with less than this a stream is about to stop.
LEAST_FREE = GIB
LAST_LINES = 3


def examine(name: str) -> list[Finding]:
    """Every check of a pipeline, in the order in which one would mend what is wrong."""
    found: list[Finding] = []
    pipeline, definition = of_definition(name)
    found.append(definition)
    found += of_disks()
    control = of_control()
    found.append(control)
    if control.good and pipeline is not None:
        found += of_kafka(pipeline)
        silent = any(finding.fault is not None and finding.fault.field == "TALLY_KAFKA" for finding in found)
        found += of_agreement(pipeline, silent=silent)
        found += [of_wish(name), of_driver(name), *of_locks(pipeline), *of_incidents(name)]
    return found


def first(found: list[Finding]) -> str:
    """What to do first; "" where all is well."""
    return next((finding.cure or finding.seen for finding in found if not finding.good), "")


def guarded(name: str, check: Callable[[], str]) -> Finding:
    """A check that is good unless it raises a refusal."""
    try:
        return Finding(name=name, seen=check())
    except TallyError as fault:
        return Finding(name=name, seen=fault.message, fault=fault)


def of_definition(name: str) -> tuple[Pipeline | None, Finding]:
    """The pipeline, if its file loads; a name that no file has is wrong use, and raises."""
    known = catalogue()
    if name not in known.broken:
        pipeline = known.pipeline(name)
        return pipeline, Finding(name="definition", seen=f"version {pipeline.version}, {pipeline.where}")
    return None, guarded("definition", lambda: str(known.pipeline(name)))


def of_disks() -> Iterator[Finding]:
    run = settings()
    for name, root in (("home", str(run.home)), ("lake", run.lake_root), ("checkpoints", run.checkpoint_root)):
        if "://" in root:
            yield Finding(name="disk", seen=f"{name}: {root} is no local disk")
            continue
        there = next(path for path in (Path(root), *Path(root).parents) if path.exists())
        free = psutil.disk_usage(str(there)).free
        seen, cure = f"{name}: {free / GIB:.1f} GiB free at {root}", "make room: docs/runbook.md, The disk is full"
        fault = TallyError(f"{seen}, 1 GiB is wanted", field="disk", cure=cure) if free < LEAST_FREE else None
        yield Finding(name="disk", seen=fault.message if fault else seen, fault=fault)


def of_control() -> Finding:
    def answers() -> str:
        url = sa.make_url(settings().control_url).render_as_string(hide_password=True)
        store().connect().close()
        return url

    return guarded("control store", answers)


def of_kafka(pipeline: Pipeline) -> Iterator[Finding]:
    """Whether Kafka answers, and each topic is there; a silent cluster is asked only once."""
    for topic in pipeline.reads:

        def has_topic(name: str = topic.name) -> str:
            _, partitions = kafka.describe(name, kafka.HURRY)
            return f"{settings().bootstrap()} has {name}, {len(partitions)} partitions"

        finding = guarded("kafka", has_topic)
        yield finding
        if finding.fault is not None and finding.fault.field == "TALLY_KAFKA":
            return


def of_agreement(pipeline: Pipeline, *, silent: bool) -> list[Finding]:
    """What must agree for the stream to start; a silent Kafka is not asked again."""
    try:
        stored = stored_state.read(pipeline)
        return list(agreement.at_rest(stored) if silent else agreement.findings(stored, kafka.HURRY))
    except TallyError as fault:
        return [Finding(name="checkpoint", seen=fault.message, fault=fault)]


def of_wish(name: str) -> Finding:
    wish = streams.wanted(name)
    since = f" since {iso(from_millis(wish['at']))} by {wish['by']}" if wish["at"] else ""
    why = f": {printable(wish['why'])}" if wish["why"] else ""
    return Finding(name="wanted", seen=f"{wish['state']}{since}{why}")


def of_driver(name: str) -> Finding:
    """Whether a driver lives and speaks where the stream should run, and what it said last where it does not."""
    row = streams.stream(name) or {}
    app = row.get("app") or driver_files.APP
    lives, driver = lock.is_held(driver_files.lock_path(app)), streams.driver(app)
    silent = None if driver is None else now_ms() - int(driver["heartbeat_at"])
    log = Path((driver or {}).get("log") or driver_files.log_path(app))
    spoke = "never spoke" if silent is None else f"spoke {max(silent, 0) // 1000} s ago"
    running = streams.wanted(name)["state"] == "running"
    said = [line for line in driver_log.messages(lines_of(process.tail(log, LAST_LINES))) if line.strip()]
    ending = f"; log {log}" + (": " + " | ".join(line.strip()[:160] for line in said) if said else "")
    deaths, words = int((driver or {}).get("deaths", 0)), str((driver or {}).get("last_words", ""))
    if not lives:
        seen = f"no driver of {app} lives, the last one {spoke}" + (f": {words}" if words else "") + ending
        cure = memory.cure(words) or "the streams DAG starts one; by hand: tally stream"
        return of_wrong_driver(seen, cure) if running else Finding(name="driver", seen=seen)
    if silent is not None and silent > SILENCE_MS:
        seen = f"the driver of {app} lives but {spoke}{ending}"
        return of_wrong_driver(seen, "the streams DAG replaces it: docs/runbook.md, hung")
    if running and deaths > 1:
        seen = f"{deaths} drivers of {app} in a row died before every stream went on: {words}{ending}"
        return of_wrong_driver(seen, memory.cure(words) or f"mend what {log} names")
    state, reason = row.get("state", "unknown"), row.get("reason", "")
    seen = f"the driver of {app} lives and {spoke}; the stream is {state}" + (f": {reason}" if reason else "")
    if running and state in ("failed", "gave_up", "data_lost"):
        told = [one.cure for one in incidents.opened(name) if one.evidence == reason]
        return of_wrong_driver(seen, (told[0] if told else "") or f"look at {log}")
    return Finding(name="driver", seen=seen)


def of_wrong_driver(seen: str, cure: str) -> Finding:
    return Finding(name="driver", seen=seen, fault=TallyError(seen, field="driver", cure=cure))


def of_locks(pipeline: Pipeline) -> Iterator[Finding]:
    """Who writes the stream's and the batch's table now; nobody does no harm."""
    for layer in ("speed", "batch"):
        path = lock.table_path(layer, pipeline.name, pipeline.version)
        who = lock.describe(path) if lock.is_held(path) else "nobody"
        yield Finding(name="lock", seen=f"the {layer} table is held by {who}")


def of_incidents(name: str) -> Iterator[Finding]:
    shared = [one for one in incidents.opened("") if one.cause in incidents.DRIVER_FAULTS]
    found = [*incidents.opened(name), *shared]
    if not found:
        yield Finding(name="incidents", seen="none is open")
    for one in found:
        seen = f"{one.cause}, {one.times} times since {iso(from_millis(one.first_seen))}: {one.evidence}"
        yield Finding(name="incident", seen=seen, fault=TallyError(seen, field="incident", cure=one.cure or None))
