"""The instant at which both layers are compared: a micro-batch whose every offset the batch's archive already holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

from tally.base.duration import millis, parse_duration
from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.batch import restate
from tally.batch.restatement import Restatement
from tally.catalog.ranges import Range, closed_starts, merge, without
from tally.catalog.spec import Pipeline
from tally.control import ledger, seals, streams
from tally.control.ledger import MicroBatch
from tally.control.store import now_ms
from tally.kinds.kind import History, LateRule
from tally.lake import delta
from tally.speed import commit
from tally.speed.upkeep import short_log

Offsets = dict[str, dict[int, int]]

# Read this many more micro-batches than a comparison needs: one whose entry is out of order is still seen.
MARGIN = 1000


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What is compared with what: the stream after its last batch here, the batch table after its newest restatement.

    Both tables are read as they stood right before their next such commit, so harm done to them since is seen. A
    stream's log is short: where it no longer knows the cut, `travels` is false, and only windows are compared that were
    closed by then, for no later micro-batch changed them.
    """

    pipeline: Pipeline
    batches: Sequence[MicroBatch]  # those that can have held a compared event, up to the cut: see `reaching_back`
    stated: Restatement
    speed_version: int
    travels: bool
    batch_version: int
    filters: bool  # whether the function leaves events out before it aggregates
    late_rule: LateRule

    @property
    def last(self) -> MicroBatch:
        return self.batches[-1]

    @property
    def history(self) -> History:
        return History(batches=self.batches, late_rule=self.late_rule)

    @property
    def closed_starts(self) -> int:
        """A window that starts before this is closed, if it is no longer than the declared size."""
        return closed_starts(self.pipeline, self.last.watermark, self.settle)

    @cached_property
    def watermark(self) -> int:
        """A window that ends this early can take no event any more that the stream has yet to read."""
        return self.last.watermark - millis(self.pipeline.linger) - millis(self.settle)

    @cached_property
    def settle(self) -> timedelta:
        return parse_duration(settings().settle, field="TALLY_SETTLE")

    def closed(self, window_end: int) -> bool:
        return window_end <= self.watermark


def find(pipeline: Pipeline, late_rule: LateRule, filters: bool) -> Cut:
    """The newest cut; where there is none, the answer is no, with what to run first."""
    stated = restate.newest(pipeline)
    if stated is None:
        raise AnswerIsNo(
            "no window was ever stated by the batch",
            pipeline=pipeline.name,
            cure=f"tally batch {pipeline.name} --from T --to T",
        )
    newest = ledger.newest(pipeline.name, pipeline.version)
    if newest is None:
        raise AnswerIsNo(
            "the stream has committed nothing yet", pipeline=pipeline.name, cure=f"tally stream {pipeline.name}"
        )
    begun = streams.stream(pipeline.name) or {}
    if begun.get("version") == pipeline.version and int(begun.get("generation", 0)) > newest.generation:
        raise AnswerIsNo(
            f"the stream is being rebuilt: generation {begun['generation']} has committed nothing yet",
            pipeline=pipeline.name,
            cure=f"once it has, tally reconcile {pipeline.name}",
        )
    last = ledger.last_where(newest, lambda batch: archived(batch, stated))
    if last is None:
        raise AnswerIsNo(
            "the stream is ahead of what the batch has archived",
            pipeline=pipeline.name,
            cure=f"tally batch {pipeline.name} --from T --to T, then reconcile again",
        )
    path = commit.path(pipeline)
    recent = last.committed_at > now_ms() - short_log.KEPT_MS // 2
    made = commit.version_of(pipeline, last) if recent else None
    return Cut(
        pipeline=pipeline,
        batches=[last],
        stated=stated,
        speed_version=delta.version(path) if made is None else delta.standing(path, "micro-batch", made),
        travels=made is not None,
        batch_version=delta.standing(restate.path(pipeline), "restate", stated.delta_version),
        filters=filters,
        late_rule=late_rule,
    )


def reaching_back(cut: Cut, offsets: Offsets) -> Cut:
    """The cut with every micro-batch that can have held these offsets or later ones, by topic and partition."""

    def before_all(batch: MicroBatch) -> bool:
        return all(
            batch.ranges.get(topic, {}).get(partition, (0, 0))[0] <= offset
            for topic, parts in offsets.items()
            for partition, offset in parts.items()
        )

    pipeline = cut.pipeline
    first = ledger.last_where(cut.last, before_all)
    number = max(0, (first.batch if first else 0) - MARGIN)
    batches = ledger.read(pipeline.name, pipeline.version, cut.last.generation, number, cut.last.batch)
    return replace(cut, batches=batches)


def archived(batch: MicroBatch, stated: Restatement) -> bool:
    """Whether every offset that a micro-batch reached lies in the archive that the batch table was stated from."""
    return all(
        to <= stated.ends.get(topic, {}).get(partition, 0)
        for topic, parts in batch.ranges.items()
        for partition, (_, to) in parts.items()
    )


def due(cut: Cut) -> list[Range]:
    """The stated windows that are closed and neither sealed nor partial: what a plain reconciliation looks at.

    A slot that an audit holds is among them: it stays held, and is shown, until it is restated.
    """
    done = merge(
        (seal.slot_start, seal.slot_end)
        for seal in seals.read(cut.pipeline.name, cut.pipeline.version)
        if seal.state in ("sealed", "partial")
    )
    return without(closed(cut, cut.stated.current), done)


def closed(cut: Cut, ranges: Sequence[Range]) -> list[Range]:
    """What of the ranges lies in windows that are closed."""
    return merge((start, min(end, cut.closed_starts)) for start, end in ranges if start < cut.closed_starts)
