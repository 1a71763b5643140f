"""What lies in one stream's checkpoint, ledger and table, read at once. No Spark, and nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import ledger
from tally.control.ledger import MicroBatch
from tally.lake import delta
from tally.speed import checkpoint


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """What lies in one stream's checkpoint, ledger and table; `applied` is the newest micro-batch that any of the last
    two knows."""

    pipeline: Pipeline
    generation: int
    root: str
    shared: bool  # whether the checkpoint is that of its topic's stream
    local: bool
    begun: int  # the newest plan, as it was seen before the rest
    commits: Sequence[int]
    plans: Sequence[int]
    recorded: MicroBatch | None
    applied: MicroBatch | None
    log: delta.Log

    @property
    def fresh(self) -> bool:
        """Whether a new generation has yet to plan anything, or to take any of its topic's; it begins with an empty
        table."""
        older = self.applied is None or self.applied.generation < self.generation
        return self.generation > 1 and older and (self.shared or not self.plans)

    @property
    def mine(self) -> MicroBatch | None:
        """The newest applied micro-batch of the checkpoint's own generation."""
        return self.applied if self.applied is not None and self.applied.generation == self.generation else None


def read(pipeline: Pipeline) -> StoredState:
    """Read what there is, in an order in which a stream that runs meanwhile is never seen to disagree."""
    generation = checkpoint.generation(pipeline.name, pipeline.version)
    root = checkpoint.root(pipeline.name, pipeline.version, generation)
    begun, commits = checkpoint.newest_batch(root), checkpoint.batches(root, "commits")
    recorded = ledger.newest(pipeline.name, pipeline.version)
    log = delta.log(settings().table("speed", pipeline.name, pipeline.version))
    told = log.newest("micro-batch")
    both = [batch for batch in (recorded, ledger.from_commit(told) if told else None) if batch is not None]
    return StoredState(
        pipeline=pipeline,
        generation=generation,
        root=root,
        shared=root == checkpoint.topic_root(pipeline.reads[0].name),
        local="://" not in settings().checkpoint_root,
        begun=begun,
        commits=commits,
        plans=checkpoint.batches(root, "offsets"),
        recorded=recorded,
        applied=max(both, key=lambda batch: (batch.generation, batch.batch), default=None),
        log=log,
    )
