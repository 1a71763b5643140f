"""The instant at which both layers are compared: a micro-batch whose every offset the batch's archive already holds."""

from __future__ import annotations

from dataclasses import dataclass

from tally import lake
from tally.batch import restate
from tally.catalog.duration import millis, parse_duration
from tally.catalog.ranges import Range, ceil, merge, without
from tally.catalog.spec import Pipeline
from tally.control import ledger, seals
from tally.control.ledger import MicroBatch
from tally.errors import AnswerIsNo
from tally.settings import settings
from tally.speed import commit


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What is compared with what: the stream after its last batch here, the batch table after its newest restatement.

    Both tables are read as they stood right before their next such commit, so harm done to them since is seen.
    """

    pipeline: Pipeline
    batches: list[MicroBatch]
    stated: restate.Restatement
    speed_version: int
    batch_version: int
    filters: bool  # whether the function leaves events out before it aggregates
    late_rule: str  # what Spark compares with the watermark: see fate.late_rule

    @property
    def last(self) -> MicroBatch:
        return self.batches[-1]

    @property
    def watermark(self) -> int:
        """A window that ends this early can take no event any more that the stream has yet to read."""
        settle = millis(parse_duration(settings().settle, field="TALLY_SETTLE"))
        return self.last.watermark - millis(self.pipeline.linger) - settle

    def closed(self, window_end: int) -> bool:
        return window_end <= self.watermark


def find(pipeline: Pipeline, late_rule: str, filters: bool) -> Cut:
    """The newest cut; where there is none, the answer is no, with what to run first."""
    stated = restate.newest(pipeline)
    if stated is None:
        raise AnswerIsNo(
            "no window was ever stated by the batch",
            pipeline=pipeline.name,
            cure=f"tally batch {pipeline.name} --from T --to T",
        )
    known = ledger.read(pipeline.name, pipeline.version)
    if not known:
        raise AnswerIsNo(
            "the stream has committed nothing yet", pipeline=pipeline.name, cure=f"tally stream {pipeline.name}"
        )
    generation = known[-1].generation
    batches = [batch for batch in known if batch.generation == generation]
    held = [at for at, batch in enumerate(batches) if archived(batch, stated)]
    if not held:
        raise AnswerIsNo(
            "the stream is ahead of what the batch has archived",
            pipeline=pipeline.name,
            cure=f"tally batch {pipeline.name} --from T --to T, then reconcile again",
        )
    last = batches[held[-1]]
    return Cut(
        pipeline=pipeline,
        batches=batches[: held[-1] + 1],
        stated=stated,
        speed_version=lake.standing(commit.path(pipeline), "micro-batch", last.delta_version),
        batch_version=lake.standing(restate.path(pipeline), "restate", stated.delta_version),
        filters=filters,
        late_rule=late_rule,
    )


def archived(batch: MicroBatch, stated: restate.Restatement) -> bool:
    """Whether every offset that a micro-batch reached lies in the archive that the batch table was stated from."""
    return all(
        to <= stated.ends.get(topic, {}).get(partition, 0)
        for topic, parts in batch.ranges.items()
        for partition, (_, to) in parts.items()
    )


def due(cut: Cut) -> list[Range]:
    """The stated windows that are closed and not sealed: what a reconciliation without a range looks at."""
    step = millis(cut.pipeline.window.step)
    size = millis(cut.pipeline.window.size)
    last_start = ceil(max(0, cut.watermark - size) + 1, step)
    sealed = [
        (seal.slot_start, seal.slot_end)
        for seal in seals.read(cut.pipeline.name, cut.pipeline.version)
        if seal.state == "sealed"
    ]
    stated = [(start, min(end, last_start)) for start, end in cut.stated.current]
    return without(merge(stated), sealed)
