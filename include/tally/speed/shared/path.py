"""Which way a stream takes: a query of its own, or its topic's. It is chosen when a generation begins, and stays."""

from __future__ import annotations

from pathlib import Path

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.checks.definition import Definition
from tally.control import ledger
from tally.parts import Split, in_two
from tally.speed import checkpoint


def sharing(definition: Definition) -> Split | None:
    """The pipeline's function in two where its stream is shared; None where it has a query of its own."""
    pipeline = definition.pipeline
    generation = checkpoint.generation(pipeline.name, pipeline.version)
    own = Path(checkpoint.folder(pipeline.name, pipeline.version, generation))
    chosen = checkpoint.shared_topic(str(own))
    if chosen is None and not begins_shared(pipeline, own):
        return None
    found = in_two(definition)
    if isinstance(found, Split):
        if chosen is None:
            own.mkdir(parents=True, exist_ok=True)
            draft = own / ".shared"
            draft.write_text(pipeline.reads[0].name)
            draft.rename(own / checkpoint.SHARED)
        return found
    if chosen is None:
        return None
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
