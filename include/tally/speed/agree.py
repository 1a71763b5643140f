"""A stream starts only where checkpoint, ledger, table and topics tell one story; what each tells, and the cure.

Nothing here starts a JVM or changes anything. Spark itself would take an empty commit of the table for one of nothing,
go on from an older checkpoint, or stop with a message of its own that names no cure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import ledger
from tally.control.ledger import MicroBatch
from tally.lake import delta
from tally.sources import kafka
from tally.speed import checkpoint

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


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What lies in one stream's checkpoint, ledger and table; `applied` is the newest micro-batch that any of the last
    two knows."""

    pipeline: Pipeline
    generation: int
    root: str
    local: bool
    begun: int  # the newest plan, as it was seen before the rest
    commits: Sequence[int]
    plans: Sequence[int]
    recorded: MicroBatch | None
    applied: MicroBatch | None
    log: delta.Log

    @property
    def fresh(self) -> bool:
        """Whether a new generation has yet to plan anything; it begins with an empty table."""
        older = self.applied is None or self.applied.generation < self.generation
        return self.generation > 1 and older and not self.plans

    @property
    def mine(self) -> MicroBatch | None:
        """The newest applied micro-batch of the checkpoint's own generation."""
        return self.applied if self.applied is not None and self.applied.generation == self.generation else None

    def bad(self, name: str, seen: str, cure: str = "") -> Finding:
        cure = cure or f"tally rebuild {self.pipeline.name}"
        return Finding(name=name, seen=seen, fault=AnswerIsNo(seen, pipeline=self.pipeline.name, field=name, cure=cure))


def look(pipeline: Pipeline) -> Sight:
    """Gather what there is, in an order in which a stream that runs meanwhile is never seen to disagree."""
    generation = checkpoint.generation(pipeline.name, pipeline.version)
    root = checkpoint.root(pipeline.name, pipeline.version, generation)
    begun, commits = checkpoint.newest_batch(root), checkpoint.batches(root, "commits")
    recorded = ledger.newest(pipeline.name, pipeline.version)
    log = delta.log(settings().table("speed", pipeline.name, pipeline.version))
    told = log.newest("micro-batch")
    both = [batch for batch in (recorded, ledger.from_commit(told) if told else None) if batch is not None]
    return Sight(
        pipeline=pipeline,
        generation=generation,
        root=root,
        local="://" not in settings().checkpoint_root,
        begun=begun,
        commits=commits,
        plans=checkpoint.batches(root, "offsets"),
        recorded=recorded,
        applied=max(both, key=lambda batch: (batch.generation, batch.batch), default=None),
        log=log,
    )


def ensure(pipeline: Pipeline) -> Sight:
    """Raise the first refusal there is; what was seen, where there is none."""
    sight = look(pipeline)
    for finding in findings(sight):
        if finding.fault is not None:
            raise finding.fault
    return sight


def findings(sight: Sight, patience: float = kafka.PATIENCE) -> Iterator[Finding]:
    """Each thing that must agree, in the order in which one would mend it."""
    yield from at_rest(sight)
    yield from of_topics(sight, patience)


def at_rest(sight: Sight) -> Iterator[Finding]:
    """What lies on disk and in the control store."""
    if sight.local:
        yield of_checkpoint(sight)
        plans = of_plans(sight)
        yield plans
        yield of_commits(sight)
        yield of_ledger(sight, readable=plans.good)
    yield of_table(sight)


def of_checkpoint(sight: Sight) -> Finding:
    """There is one, it is the newest one, and of the generation that the table is of."""
    applied, root, number = sight.applied, sight.root, sight.generation
    emptied = sight.log.newest("rebuild")
    if emptied is not None and emptied.words["generation"] > number:
        seen = f"generation {number} is the newest below {Path(root).parent}, but the table was emptied for generation "
        return sight.bad("checkpoint", f"{seen}{emptied.words['generation']}: its folder is gone")
    if applied is not None and applied.generation > number:
        seen = f"{root} is of generation {number}, but micro-batch {applied.batch} of generation {applied.generation}"
        return sight.bad("checkpoint", f"{seen} is applied: the folder of that generation is gone")
    if not sight.plans:
        if sight.mine is not None:
            seen = f"{root} holds no plan, but micro-batches up to {sight.mine.batch} are applied: it was deleted"
            return sight.bad("checkpoint", seen, put_back(sight, "checkpoint"))
        return Finding(name="checkpoint", seen=f"generation {number} begins at the oldest retained offsets")
    if not has_metadata(root):
        return sight.bad("checkpoint", f"{root}/metadata is missing or cannot be read")
    copied = sight.plans[-1] >= max([-1, *sight.commits])  # else a plan alone is missing: see of_plans
    if copied and sight.mine is not None and sight.plans[-1] < sight.mine.batch:
        seen = (
            f"it ends at micro-batch {sight.plans[-1]}, but {sight.mine.batch} is applied: an older copy was put back"
        )
        return sight.bad("checkpoint", seen, put_back(sight, "checkpoint"))
    return Finding(name="checkpoint", seen=f"generation {number}, micro-batch {sight.plans[-1]} planned")


def of_plans(sight: Sight) -> Finding:
    """The newest entries of the offset log are there and can be read: Spark goes on from the last two."""
    if not sight.plans:
        return Finding(name="offsets log", seen="nothing is planned yet")
    newest = max([*sight.plans, *sight.commits])
    wanted = range(max(sight.plans[0], newest - KEPT_PLANS + 1), newest + 1)
    missing = sorted(set(wanted) - set(sight.plans))
    if missing:
        where = " in the middle" if missing[-1] < sight.plans[-1] else f", but commits/{newest} is there"
        seen = f"{sight.root}/offsets/{missing[-1]} is missing{where}"
        return sight.bad("offsets log", seen, put_back(sight, "file"))
    for number in (newest, newest - 1):
        fault = checkpoint.plan_fault(sight.root, number, sight.pipeline.reads) if number >= wanted[0] else ""
        if fault:
            seen = f"{sight.root}/offsets/{number} {fault}"
            return sight.bad("offsets log", seen, put_back(sight, "file"))
    return Finding(name="offsets log", seen=f"micro-batches {wanted[0]} to {newest}")


def of_commits(sight: Sight) -> Finding:
    """The newest entry of the commit log can be read, and what must be over was applied."""
    newest = max([-1, *sight.commits])
    fault = checkpoint.commit_fault(sight.root, newest) if sight.commits else ""
    if fault:
        return sight.bad("commit log", f"{sight.root}/commits/{newest} {fault}", put_back(sight, "file"))
    over = max(newest, sight.begun - 1)  # a plan is made when the one before is over
    reached = sight.mine.batch if sight.mine is not None else -1
    if over > reached:
        have = f"only {reached}" if reached >= 0 else "none of this generation"
        seen = f"the checkpoint has done micro-batch {over}, ledger and table hold {have}: rows in between are missing"
        return sight.bad("commit log", seen, put_back(sight, "table"))
    return Finding(name="commit log", seen=f"micro-batch {newest} is done" if newest >= 0 else "nothing is done yet")


def of_ledger(sight: Sight, *, readable: bool) -> Finding:
    """Every plan that is still there ends where the ledger's entry of that micro-batch does."""
    if sight.mine is None or not readable or not sight.plans:
        return Finding(
            name="ledger", seen="no micro-batch of this generation yet" if sight.mine is None else "not compared"
        )
    name, version = sight.pipeline.name, sight.pipeline.version
    first = max(sight.plans[0], sight.plans[-1] - KEPT_PLANS + 1)
    known = {batch.batch: batch for batch in ledger.read(name, version, sight.generation, first)}
    known[sight.mine.batch] = sight.mine
    topics = [topic.name for topic in sight.pipeline.reads]
    for number in sorted(known.keys() & set(sight.plans), reverse=True):
        if checkpoint.plan_fault(sight.root, number, topics):
            continue  # an older one that nothing reads any more
        _, ends = checkpoint.entry(sight.root, number, topics)
        told = {topic: known[number].ends(topic) for topic in topics if known[number].ends(topic)}
        if {topic: parts for topic, parts in ends.items() if parts} != told:
            seen = f"micro-batch {number} ends at {ends} in the checkpoint, at {told} in the ledger: another history"
            return sight.bad("ledger", seen, put_back(sight, "checkpoint"))
    return Finding(name="ledger", seen=f"micro-batch {sight.mine.batch} is applied, as it was planned")


def of_table(sight: Sight) -> Finding:
    """The table has every commit that the ledger knows of its generation, and each can be read."""
    log, recorded = sight.log, sight.recorded
    if sight.fresh:
        return Finding(name="table", seen=f"generation {sight.generation} begins with an empty one")
    if log.wrong:
        seen = f"{log.wrong}: Delta reads an empty one as a commit of nothing, and stops at others"
        return sight.bad("table", seen, put_back(sight, "file"))
    if recorded is None or recorded.generation != sight.generation:
        return Finding(name="table", seen=f"version {log.version}" if log.version >= 0 else "none yet")
    batch, version = recorded.batch, recorded.delta_version
    if log.version < version:
        have = f"is at version {log.version}" if log.version >= 0 else "is gone"
        seen = f"it {have}, but micro-batch {batch} is in version {version}: an older copy was put back"
        return sight.bad("table", seen, put_back(sight, "table"))
    holds = log.at(version)
    if holds and (holds.words.get("generation"), holds.words.get("batch")) != (recorded.generation, batch):
        seen = f"its version {version} is not micro-batch {batch}, as the ledger says: another history"
        return sight.bad("table", seen, put_back(sight, "table"))
    return Finding(name="table", seen=f"version {log.version}")


def of_topics(sight: Sight, patience: float) -> Iterator[Finding]:
    """Each topic is the one that was read, with all its partitions, and retention has left what is unread."""
    names = [topic.name for topic in sight.pipeline.reads]
    try:
        needed, reached = checkpoint.unread(sight.root, names) if sight.local else ({}, {})
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
            kafka.check_retained(topic, needed.get(topic, {}), reached.get(topic, {}), sight.pipeline.name, patience)
            yield Finding(name="retention", seen=f"{topic} holds all that is unread")
        except TallyError as fault:
            yield Finding(name="retention", seen=fault.message, fault=fault)


def has_metadata(root: str) -> bool:
    try:
        return bool(json.loads(Path(root, "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def put_back(sight: Sight, what: str) -> str:
    return f"put back the newest {what} if you have it, else: tally rebuild {sight.pipeline.name}"
