"""What a stream's driver says of an error: a refusal that a person can act on, whatever raised it.

What a micro-batch raises in Python comes back as the text of a traceback, our own refusals among them; what Spark
raises for it comes with every error in between.
"""

from __future__ import annotations

import re
import traceback
from datetime import UTC, datetime

from tally.base.duration import iso
from tally.base.errors import AnswerIsNo, StreamFailed, TallyError
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.lake import memory
from tally.speed import checkpoint
from tally.speed.start import agreement

LONGEST = 500
TRACEBACK = "Traceback (most recent call last)"  # of a micro-batch, below Spark, or of a function in Python's workers
# A line of Python's that ends a traceback: the error's class, and what it says.
RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Lost|No)): (?P<said>.+)$")
REFUSAL = "tally.base.errors."
# "Caused by: a.b.SomeException: c.d.Other: what it says"
CAUSED = re.compile(r"^\s*Caused by: (?P<said>.+)$")
CLASSES = re.compile(r"^(?:[a-zA-Z_$][\w$]*\.)+[A-Z][\w$]*(?:: |$)")
PLAN = "=== Streaming Query ==="
UNREADABLE = re.compile(r"\[((?:CANNOT_LOAD_STATE_STORE|STATE_STORE_|CHECKPOINT_FILE_CHECKSUM)[A-Z_.]*)\]([^\n]*)")
FILE = re.compile(r"file:(/\S+\.(?:delta|snapshot|changelog|zip))")


def with_name(error: TallyError, pipeline: Pipeline) -> str:
    """An error with the pipeline's name before it, once."""
    return str(error) if error.pipeline == pipeline.name else f"{pipeline.name}: {error}"


def diagnosed(error: BaseException, pipeline: Pipeline) -> TallyError:
    """The cause behind a failed query: lost data with its range where that is it."""
    root = checkpoint.root(pipeline.name, pipeline.version, checkpoint.generation(pipeline.name, pipeline.version))
    try:
        agreement.check_topics(pipeline, root)
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
    if harmed := of_state(error, pipeline):
        return harmed
    if full := memory.behind(error, memory.STREAM):  # an executor's: ours would be gone
        return StreamFailed(full.message, pipeline=pipeline.name, cure=f"{full.cure}; all of it is in {whole}")
    words, cure = cause(str(error))
    if cure:  # one of ours, raised below Spark
        return AnswerIsNo(words, pipeline=pipeline.name, cure=f"{cure}; all of it is in {whole}")
    return StreamFailed(words or type(error).__name__, pipeline=pipeline.name, cure=f"all of it is in {whole}")


def of_state(error: BaseException, pipeline: Pipeline) -> AnswerIsNo | None:
    """What to do about a state that cannot be loaded, which Spark names no cure for; None for other errors."""
    text = str(error)
    found = UNREADABLE.search(text)
    if found is None:
        return None
    file = FILE.search(text)
    where = f" ({file[1]})" if file else ""
    return AnswerIsNo(
        f"Spark cannot load the stream's state{where}: {found[1]}",
        pipeline=pipeline.name,
        field="state",
        cure=f"put back the newest checkpoint if you have it, else: tally rebuild {pipeline.name}",
    )


def cause(text: str) -> tuple[str, str | None]:
    """The line, and the cure where it is a refusal of Tally's that has one."""
    lines = [line for line in text.split(PLAN)[0].splitlines() if line.strip()]
    if not lines:
        return "", None
    refused = own(lines)
    if refused is not None:
        return refused
    marked = next((line.strip() for line in lines if line.strip().startswith("[")), None)
    deepest = [said for line in lines if (met := CAUSED.match(line)) and (said := plain(met["said"]))]
    raised = [met["said"] for line in lines if (met := RAISED.match(line))] if TRACEBACK in text else []
    return (marked or (deepest or raised or [lines[0].strip()])[-1])[:LONGEST], None


def own(lines: list[str]) -> tuple[str, str | None] | None:
    """The last of Tally's own errors in a traceback: what it says, and its cure in the line below."""
    for at in range(len(lines) - 1, -1, -1):
        met = RAISED.match(lines[at])
        if met and met["kind"].startswith(REFUSAL):
            below = lines[at + 1].strip() if at + 1 < len(lines) else ""
            return met["said"][:LONGEST], below.removeprefix("cure: ") if below.startswith("cure: ") else None
    return None


def plain(said: str) -> str:
    """A message without the names of Java's classes before it."""
    while met := CLASSES.match(said):
        said = said[met.end() :]
    return said.strip()
