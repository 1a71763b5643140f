"""What a stream's driver says of an error: a refusal that a person can act on, whatever raised it."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime

from tally import memory
from tally.catalog.duration import iso
from tally.catalog.spec import Pipeline
from tally.errors import AnswerIsNo, StreamFailed, TallyError
from tally.settings import settings
from tally.speed import checkpoint, state
from tally.speed import query as queries
from tally.speed.cause import cause


def told(error: TallyError, pipeline: Pipeline) -> str:
    """An error with the pipeline's name before it, once."""
    return str(error) if error.pipeline == pipeline.name else f"{pipeline.name}: {error}"


def diagnosed(error: BaseException, pipeline: Pipeline) -> TallyError:
    """The cause behind a failed query: lost data with its range where that is it."""
    root = checkpoint.root(pipeline.name, pipeline.version, checkpoint.generation(pipeline.name, pipeline.version))
    try:
        queries.check_sources(pipeline, root)
    except TallyError as found:
        return found
    except Exception:  # who looks for the cause of one stream's failure must not end the others
        return as_refusal(error, pipeline)
    return as_refusal(error, pipeline)


def as_refusal(error: BaseException, pipeline: Pipeline) -> TallyError:
    """An error of Spark's as one line that a person can act on; the newest one stands whole in a file of its own."""
    if isinstance(error, TallyError):
        return error
    whole = settings().home / "logs" / f"stream-{pipeline.name}-error.log"
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_text(f"{iso(datetime.now(UTC))} {''.join(traceback.format_exception(error))}")
    if harmed := state.refusal(error, pipeline):
        return harmed
    if full := memory.behind(error, memory.STREAM):  # an executor's: ours would be gone
        return StreamFailed(full.message, pipeline=pipeline.name, cure=f"{full.cure}; all of it is in {whole}")
    words, cure = cause(str(error))
    if cure:  # one of ours, raised below Spark
        return AnswerIsNo(words, pipeline=pipeline.name, cure=f"{cure}; all of it is in {whole}")
    more = f"all of it is in {whole}; the stream goes on where it stopped"
    return StreamFailed(words or type(error).__name__, pipeline=pipeline.name, cure=more)
