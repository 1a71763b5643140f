"""What a Spark application says to the task that waits for it: its refusal, in a file that the task named.

The exit code alone cannot tell an answer of no from a crash, and what is printed is for people.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tally.base.errors import AnswerIsNo, TallyError
from tally.host import process

# Where the application writes it, and beside it what its JVM leaves when its heap is full.
VARIABLE = "_TALLY_ANSWER"
HEAP_IS_FULL = f'-XX:OnOutOfMemoryError="touch ${VARIABLE}.full"'


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of an application, as far as it said so."""

    said: str = ""
    final: bool = False  # another try would say the same
    heap_was_full: bool = False


def refuse(error: TallyError) -> int:
    """Say a refusal to people and to the task that waits, if one does; the exit code."""
    print(error, file=sys.stderr)
    if file := os.environ.get(VARIABLE):
        process.write_json(Path(file), {"said": str(error), "final": isinstance(error, AnswerIsNo)})
    return error.exit_code


class Awaited:
    """The place of one application's answer."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> Answer:
        """The answer; an empty one where the application could not leave any, such as one that ran elsewhere."""
        document = process.read_json(self.file)
        return Answer(
            said=str(document.get("said", "")),
            final=bool(document.get("final", False)),
            heap_was_full=Path(f"{self.file}.full").exists(),
        )


@contextmanager
def awaited() -> Iterator[Awaited]:
    """A place for the answer of the application that is started inside; nothing of it stays."""
    before = os.environ.get(VARIABLE)
    with TemporaryDirectory(prefix="tally-answer-") as folder:
        file = Path(folder) / "answer.json"
        os.environ[VARIABLE] = str(file)
        try:
            yield Awaited(file)
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
