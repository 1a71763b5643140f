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
    if not may_share(pipeline):
        return False
    own, chosen, found = folder_of(pipeline), chosen_by(pipeline), function.in_two
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


def may_share(pipeline: Pipeline) -> bool:
    """The same, as far as it is known without a look at the function."""
    return chosen_by(pipeline) is not None or begins_shared(pipeline, folder_of(pipeline))


def folder_of(pipeline: Pipeline) -> Path:
    """Of its newest generation."""
    generation = checkpoint.generation(pipeline.name, pipeline.version)
    return Path(checkpoint.folder(pipeline.name, pipeline.version, generation))


def chosen_by(pipeline: Pipeline) -> str | None:
    """The topic whose stream its newest generation shares, if it was begun so."""
    return checkpoint.shared_topic(str(folder_of(pipeline)))


def begins_shared(pipeline: Pipeline, own: Path) -> bool:
    """Whether a stream that has yet to begin is to share."""
    if not settings().shared or "://" in settings().checkpoint_root:
        return False
    return not own.exists() and ledger.newest(pipeline.name, pipeline.version) is None
