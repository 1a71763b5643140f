"""A stream's state that Spark cannot load: it finds that only when it does, and names no cure."""

from __future__ import annotations

import re

from tally.catalog.spec import Pipeline
from tally.errors import AnswerIsNo

UNREADABLE = re.compile(r"\[((?:CANNOT_LOAD_STATE_STORE|STATE_STORE_|CHECKPOINT_FILE_CHECKSUM)[A-Z_.]*)\]([^\n]*)")
FILE = re.compile(r"file:(/\S+\.(?:delta|snapshot|changelog|zip))")


def refusal(error: BaseException, pipeline: Pipeline) -> AnswerIsNo | None:
    """What to do about a state that cannot be loaded; None where the error tells of something else."""
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
