"""Which way a stream takes: a query of its own, or its topic's. It is chosen when a generation begins, and stays."""

from __future__ import annotations

from pathlib import Path

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import ledger
from tally.parts import Function, Split
from tally.speed import checkpoint


def is_shared(function: Function) -> bool:
    """Whether the pipeline takes part in its topic's stream; else it has a query of its own."""
    pipeline = function.pipeline
    generation = checkpoint.generation(pipeline.name, pipeline.version)
    own = Path(checkpoint.folder(pipeline.name, pipeline.version, generation))
    chosen = checkpoint.shared_topic(str(own))
    if chosen is None and not begins_shared(pipeline, own):
        return False
    found = function.in_two
    if isinstance(found, Split):
        if chosen is None:
            own.mkdir(parents=True, exist_ok=True)
            draft = own / ".shared"
            draft.write_text(pipeline.reads[0].name)
            draft.rename(own / checkpoint.SHARED)
        return True
    if chosen is None:
        return False
    raise AnswerIsNo(
        f"its stream was begun as a part of its topic's, but {found.reason}",
        pipeline=pipeline.name,
        field="function",
        cure=f"tally rebuild {pipeline.name}",
    )


def begins_shared(pipeline: Pipeline, own: Path) -> bool:
    """Whether a stream that has yet to begin is to share."""
    if not settings().shared or "://" in settings().checkpoint_root:
        return False
    return not own.exists() and ledger.newest(pipeline.name, pipeline.version) is None
