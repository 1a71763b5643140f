"""A stream starts only where checkpoint, ledger, table and topics tell one story; what each tells, and the cure.

Nothing here starts a JVM or changes anything. Spark itself would take an empty commit of the table for one of nothing,
go on from an older checkpoint, or stop with a message of its own that names no cure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tally.base.errors import AnswerIsNo, TallyError
from tally.catalog.spec import Pipeline
from tally.control import ledger
from tally.sources import kafka
from tally.speed import checkpoint
from tally.speed.start import stored_state
from tally.speed.start.stored_state import StoredState

# Spark keeps as many plans (spark.sql.streaming.minBatchesToRetain); of older ones a purge may have left any.
KEPT_PLANS = 20


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at: what was seen, and where it is bad, the refusal with its cure."""

    name: str
    seen: str
    fault: TallyError | None = None

    @property
    def good(self) -> bool:
        return self.fault is None

    @property
    def cure(self) -> str:
        return (self.fault.cure or "") if self.fault else ""


def ensure(pipeline: Pipeline) -> StoredState:
    """Raise the first refusal there is; what was seen, where there is none."""
    stored = stored_state.read(pipeline)
    for finding in findings(stored):
        if finding.fault is not None:
            raise finding.fault
    return stored


def findings(stored: StoredState, patience: float = kafka.PATIENCE) -> Iterator[Finding]:
    """Each thing that must agree, in the order in which one would mend it."""
    yield from at_rest(stored)
    yield from of_topics(stored, patience)


def at_rest(stored: StoredState) -> Iterator[Finding]:
    """What lies on disk and in the control store."""
    if stored.local:
        yield of_checkpoint(stored)
        plans = of_plans(stored)
        yield plans
        yield of_commits(stored)
        yield of_ledger(stored, readable=plans.good)
    yield of_table(stored)


def of_checkpoint(stored: StoredState) -> Finding:
    """There is one, it is the newest one, and of the generation that the table is of."""
    applied, root, number = stored.applied, stored.root, stored.generation
    emptied = stored.log.newest("rebuild")
    if emptied is not None and emptied.words["generation"] > number:
        seen = f"generation {number} is the newest below {Path(root).parent}, but the table was emptied for generation "
        return bad(stored, "checkpoint", f"{seen}{emptied.words['generation']}: its folder is gone")
    if applied is not None and applied.generation > number:
        seen = f"{root} is of generation {number}, but micro-batch {applied.batch} of generation {applied.generation}"
        return bad(stored, "checkpoint", f"{seen} is applied: the folder of that generation is gone")
    if not stored.plans:
        if stored.mine is not None:
            seen = f"{root} holds no plan, but micro-batches up to {stored.mine.batch} are applied: it was deleted"
            return bad(stored, "checkpoint", seen, put_back(stored, "checkpoint"))
        return Finding(name="checkpoint", seen=f"generation {number} begins at the oldest retained offsets")
    if not checkpoint.has_metadata(root):
        return bad(stored, "checkpoint", f"{root}/metadata is missing or cannot be read")
    copied = stored.plans[-1] >= max([-1, *stored.commits])  # else a plan alone is missing: see of_plans
    if copied and stored.mine is not None and stored.plans[-1] < stored.mine.batch:
        seen = (
            f"it ends at micro-batch {stored.plans[-1]}, but {stored.mine.batch} is applied: an older copy was put back"
        )
        return bad(stored, "checkpoint", seen, put_back(stored, "checkpoint"))
    return Finding(name="checkpoint", seen=f"generation {number}, micro-batch {stored.plans[-1]} planned")


def of_plans(stored: StoredState) -> Finding:
    """The newest entries of the offset log are there and can be read: Spark goes on from the last two."""
    if not stored.plans:
        return Finding(name="offsets log", seen="nothing is planned yet")
    newest = max([*stored.plans, *stored.commits])
    wanted = range(max(stored.plans[0], newest - KEPT_PLANS + 1), newest + 1)
    missing = sorted(set(wanted) - set(stored.plans))
    if missing:
        where = " in the middle" if missing[-1] < stored.plans[-1] else f", but commits/{newest} is there"
        seen = f"{stored.root}/offsets/{missing[-1]} is missing{where}"
        return bad(stored, "offsets log", seen, put_back(stored, "file"))
    for number in (newest, newest - 1):
        fault = checkpoint.plan_fault(stored.root, number, stored.pipeline.reads) if number >= wanted[0] else ""
        if fault:
            seen = f"{stored.root}/offsets/{number} {fault}"
            return bad(stored, "offsets log", seen, put_back(stored, "file"))
    return Finding(name="offsets log", seen=f"micro-batches {wanted[0]} to {newest}")


def of_commits(stored: StoredState) -> Finding:
    """The newest entry of the commit log can be read, and what must be over was applied."""
    newest = max([-1, *stored.commits])
    fault = checkpoint.commit_fault(stored.root, newest) if stored.commits else ""
    if fault:
        return bad(stored, "commit log", f"{stored.root}/commits/{newest} {fault}", put_back(stored, "file"))
    over = max(newest, stored.begun - 1)  # a plan is made when the one before is over
    reached = stored.mine.batch if stored.mine is not None else -1
    if over > reached and not stored.shared:  # what a pipeline missed of a stream that it shares, it takes first
        have = f"only {reached}" if reached >= 0 else "none of this generation"
        seen = f"the checkpoint has done micro-batch {over}, ledger and table hold {have}: rows in between are missing"
        return bad(stored, "commit log", seen, put_back(stored, "table"))
    return Finding(name="commit log", seen=f"micro-batch {newest} is done" if newest >= 0 else "nothing is done yet")


def of_ledger(stored: StoredState, *, readable: bool) -> Finding:
    """Every plan that is still there ends where the ledger's entry of that micro-batch does."""
    if stored.mine is None or not readable or not stored.plans:
        return Finding(
            name="ledger", seen="no micro-batch of this generation yet" if stored.mine is None else "not compared"
        )
    name, version = stored.pipeline.name, stored.pipeline.version
    first = max(stored.plans[0], stored.plans[-1] - KEPT_PLANS + 1)
    known = {batch.batch: batch for batch in ledger.read(name, version, stored.generation, first)}
    known[stored.mine.batch] = stored.mine
    topics = [topic.name for topic in stored.pipeline.reads]
    for number in sorted(known.keys() & set(stored.plans), reverse=True):
        if checkpoint.plan_fault(stored.root, number, topics):
            continue  # an older one that nothing reads any more
        _, ends = checkpoint.entry(stored.root, number, topics)
        told = {topic: known[number].ends(topic) for topic in topics if known[number].ends(topic)}
        if {topic: parts for topic, parts in ends.items() if parts} != told:
            seen = f"micro-batch {number} ends at {ends} in the checkpoint, at {told} in the ledger: another history"
            return bad(stored, "ledger", seen, put_back(stored, "checkpoint"))
    return Finding(name="ledger", seen=f"micro-batch {stored.mine.batch} is applied, as it was planned")


def of_table(stored: StoredState) -> Finding:
    """The table has every commit that the ledger knows of its generation, and each can be read."""
    log, recorded = stored.log, stored.recorded
    if stored.fresh:
        return Finding(name="table", seen=f"generation {stored.generation} begins with an empty one")
    if log.wrong:
        seen = f"{log.wrong}: Delta reads an empty one as a commit of nothing, and stops at others"
        return bad(stored, "table", seen, put_back(stored, "file"))
    if recorded is None or recorded.generation != stored.generation:
        return Finding(name="table", seen=f"version {log.version}" if log.version >= 0 else "none yet")
    batch, version = recorded.batch, recorded.delta_version
    if log.version < version:
        have = f"is at version {log.version}" if log.version >= 0 else "is gone"
        seen = f"it {have}, but micro-batch {batch} is in version {version}: an older copy was put back"
        return bad(stored, "table", seen, put_back(stored, "table"))
    holds = log.at(version)
    if holds and (holds.words.get("generation"), holds.words.get("batch")) != (recorded.generation, batch):
        seen = f"its version {version} is not micro-batch {batch}, as the ledger says: another history"
        return bad(stored, "table", seen, put_back(stored, "table"))
    return Finding(name="table", seen=f"version {log.version}")


def of_topics(stored: StoredState, patience: float) -> Iterator[Finding]:
    """Each topic is the one that was read, with all its partitions, and retention has left what is unread."""
    names = [topic.name for topic in stored.pipeline.reads]
    try:
        needed, reached = checkpoint.unread(stored.root, names) if stored.local else ({}, {})
    except TallyError:  # told above
        needed, reached = {}, {}
    for topic in names:
        try:
            identity = kafka.check_identity(topic, patience, remember=False)
            yield Finding(name="topic", seen=f"{topic} is the one that was first read (id {identity})")
        except TallyError as fault:
            yield Finding(name="topic", seen=fault.message, fault=fault)
            if fault.field == "TALLY_KAFKA":
                return  # the others' silence would take as long
            continue
        try:
            kafka.check_retained(topic, needed.get(topic, {}), reached.get(topic, {}), stored.pipeline.name, patience)
            yield Finding(name="retention", seen=f"{topic} holds all that is unread")
        except TallyError as fault:
            yield Finding(name="retention", seen=fault.message, fault=fault)


def check_topics(pipeline: Pipeline, root: str) -> None:
    """Refuse a recreated topic, and offsets that retention ate: what `of_topics` finds, of one checkpoint."""
    topics = [topic.name for topic in pipeline.reads]
    planned, following = checkpoint.unread(root, topics)
    for topic in topics:
        kafka.check_identity(topic)
        kafka.check_retained(topic, planned.get(topic, {}), following.get(topic, {}), pipeline.name)


def bad(stored: StoredState, name: str, seen: str, cure: str = "") -> Finding:
    cure = cure or f"tally rebuild {stored.pipeline.name}"
    return Finding(name=name, seen=seen, fault=AnswerIsNo(seen, pipeline=stored.pipeline.name, field=name, cure=cure))


def put_back(stored: StoredState, what: str) -> str:
    return f"put back the newest {what} if you have it, else: tally rebuild {stored.pipeline.name}"
