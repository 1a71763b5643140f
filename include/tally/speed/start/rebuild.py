"""What a rebuild of a stream will do, as a value that can be printed first, and the doing of it. No Spark."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Any

from deltalake.exceptions import DeltaError

from tally.backfill.coverage import archived_ranges
from tally.base.duration import from_millis, iso, millis
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import incidents, leases, ledger, runs, seals, streams
from tally.control.shares import stream_of
from tally.host import lock
from tally.lake import delta
from tally.sources import kafka
from tally.speed import checkpoint
from tally.speed.checkpoint import Chosen
from tally.speed.start import generation, stored_state

Offsets = dict[str, dict[int, int]]
WORDS: dict[Chosen, str] = {"own": "in a query of its own", "shared": "with its topic's stream"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A generation to be: where it begins, which topics it takes for new ones, and what it cannot make again."""

    pipeline: Pipeline
    number: int
    path: Chosen
    starts: Offsets
    ends: Offsets
    renewed: dict[str, str]  # recreated topics that it accepts, with their new ids
    lost: list[int]  # starts of unsealed windows that may hold events from before the starts; empty: none
    unarchived: dict[str, dict[int, tuple[int, int]]]  # offsets that neither the archive nor Kafka holds

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline.name,
            "version": self.pipeline.version,
            "generation": self.number,
            "path": self.path,
            "from": self.starts,
            "to": self.ends,
            "records": sum(self.ends[t][p] - at for t, parts in self.starts.items() for p, at in parts.items()),
            "renewed_topics": self.renewed,
            "not_rebuilt": {"windows": len(self.lost), **self.span()},
            "in_no_archive": self.unarchived,
        }

    def span(self) -> dict[str, str]:
        """The windows that the stream cannot make again, from the first to the last."""
        if not self.lost:
            return {}
        end = self.lost[-1] + millis(self.pipeline.window.step)
        return {"from": iso(from_millis(self.lost[0])), "to": iso(from_millis(end))}


def hold(pipeline: Pipeline) -> lock.Lock:
    """Be the one writer of the stream's table, at once, or say who is and how to stop it."""
    held: lock.Lock | None = None
    try:
        held = lock.hold(lock.table_path("speed", pipeline.name, pipeline.version))
        # On another machine only the lease tells; a driver there that is stopped, and goes on, writes nothing any more.
        leases.release(leases.take(leases.name_of(pipeline)))
    except TallyError as error:
        if held is not None:
            held.release()
        raise AnswerIsNo(
            f"its stream runs: {error.message}",
            pipeline=pipeline.name,
            field="rebuild",
            cure=f"tally stop {pipeline.name}, then tally rebuild {pipeline.name}, then tally resume {pipeline.name}",
        ) from None
    return held


def plan(pipeline: Pipeline, path: Chosen = "own") -> Plan:
    """What a rebuild would do now; raises where a recreated topic cannot be told from the one that was.

    Who asks for the shared path knows that the pipeline's function has parts.
    """
    if "://" in settings().checkpoint_root:
        raise AnswerIsNo(
            f"the checkpoints are at {settings().checkpoint_root}, and only a local folder is made in one step",
            pipeline=pipeline.name,
            field="TALLY_CHECKPOINTS",
            cure=f"make the folder {pipeline.name}/{pipeline.version}/g<next number> there",
        )
    stored = stored_state.read(pipeline)
    renewed = {topic.name: new for topic in pipeline.reads if (new := recreated(pipeline, topic.name))}
    if renewed and path == "shared":
        raise AnswerIsNo(
            f"topic {', '.join(renewed)} was recreated, and the stream that its pipelines share is of the old one",
            pipeline=pipeline.name,
            field="--path",
            cure=f"tally rebuild {pipeline.name} --path own",
        )
    starts = {topic.name: first_offsets(topic.name, path) for topic in pipeline.reads}
    return Plan(
        pipeline=pipeline,
        number=generation.following(stored),
        path=path,
        starts=starts,
        ends={topic.name: kafka.end_offsets(topic.name) for topic in pipeline.reads},
        renewed=renewed,
        lost=unsealed_before(pipeline, starts, bool(renewed)),
        unarchived={} if renewed else in_no_archive(starts),
    )


def first_offsets(topic: str, path: Chosen) -> dict[int, int]:
    """Where a generation that is made now begins: where Kafka does, or with the first whole micro-batch of the topic's
    stream."""
    begin = kafka.begin_offsets(topic)
    newest = ledger.newest(*stream_of(topic)) if path == "shared" else None
    if newest is None:
        return begin
    gone = ledger.last_where(
        newest, lambda one: any(start < begin.get(p, 0) for p, (start, _) in one.ranges[topic].items())
    )
    return begin if gone is None else begin | gone.ends(topic)


def recreated(pipeline: Pipeline, topic: str) -> str | None:
    """The new id of a topic that was recreated; None where it is still the one that was read.

    It is taken only where nothing else counts in the old one's offsets: those of the new one begin at 0 again, and in
    an archive, or in another pipeline's ledger, they would be taken for the old records of the same numbers.
    """
    known = runs.topic_id(topic) or kafka.archived_identity(topic)
    identity, _ = kafka.describe(topic)
    if known in (None, identity):
        return None
    refused = delta.newest(settings().table("quarantine", topic), "quarantine")
    archived = runs.ingest_history(topic) or kafka.archived_identity(topic) or refused
    counting = ["its archive"] if archived else []
    for other in catalogue().readers(topic):
        root = checkpoint.root(other.name, other.version, checkpoint.generation(other.name, other.version))
        mine = ledger.newest(other.name, other.version) is not None or checkpoint.newest_batch(root) >= 0
        counting += [f"the stream {other.name}"] if mine and other.name != pipeline.name else []
    if counting:
        raise AnswerIsNo(
            f"topic {topic} was recreated (id {known}, now {identity}): its offsets begin at 0 again, and "
            f"{' and '.join(counting)} would take its records for the old ones of the same offsets",
            pipeline=pipeline.name,
            field=topic,
            cure="give the topic a new name, or start with a new TALLY_HOME",
        )
    return identity


def unsealed_before(pipeline: Pipeline, starts: Offsets, everything: bool) -> list[int]:
    """The starts of windows that no seal vouches for and that events from before these offsets may be part of."""

    def began_before(batch: ledger.MicroBatch) -> bool:
        return any(
            start < starts.get(topic, {}).get(partition, start)
            for topic, parts in batch.ranges.items()
            for partition, (start, _) in parts.items()
        )

    newest = ledger.newest(pipeline.name, pipeline.version)
    last = newest if newest is None or everything else ledger.last_where(newest, began_before)
    if last is None:
        return []
    latest = last.watermark + max(millis(topic.lateness) for topic in pipeline.reads)
    try:
        table = delta.table(settings().table("speed", pipeline.name, pipeline.version))
        found = table.to_pyarrow_table(columns=["window_start"]).column(0).unique().to_pylist() if table else []
    except (DeltaError, OSError):
        return []  # the table cannot be read: which windows it held is not known
    slots = {pipeline.slot(int(start.timestamp() * 1000)) for start in found}
    sealed = {seal.slot_start for seal in seals.read(pipeline.name, pipeline.version) if seal.state == "sealed"}
    return sorted(slot for slot in slots - sealed if slot <= latest)


def in_no_archive(starts: Offsets) -> dict[str, dict[int, tuple[int, int]]]:
    """The offsets between the archive's end and the starts: neither layer will ever have them."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, parts in starts.items():
        taken = archived_ranges(topic)
        for partition, start in parts.items():
            _, reached = taken.get(partition, (0, 0))
            if reached < start:
                found.setdefault(topic, {})[partition] = (reached, start)
    return found


def apply(planned: Plan, why: str) -> int:
    """Make the generation, and let go of what held the stream back; the number of incidents that this closed.

    The caller holds the table's lock. The folder comes first: killed before it nothing is changed, after it a rebuild
    that is begun again makes one more generation.
    """
    pipeline, by = planned.pipeline, getpass.getuser()
    note = {"by": by, "why": why, **planned.as_dict()}
    generation.make(pipeline, planned.number, note, planned.path)
    for topic, identity in planned.renewed.items():
        runs.remember_topic(topic, identity)
    done = f"rebuilt by {by}" + (f": {why}" if why else "")
    streams.show(pipeline.name, version=pipeline.version, state="starting", reason="", failures=0, retry_at=0)
    causes = {incident.cause for incident in incidents.opened(pipeline.name)}
    closed = incidents.close(pipeline.name, *causes, done=done) if causes else 0
    said = f"generation {planned.number} begins at the oldest retained offsets, {WORDS[planned.path]}"
    incidents.report(pipeline.name, "rebuilt", said, done=done)
    incidents.close(pipeline.name, "rebuilt", done=done)
    return closed
