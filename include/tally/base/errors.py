"""What Tally says when it will not go on: the pipeline, the field and the cure, never a traceback."""

from __future__ import annotations

from tally.base.safe_text import named, printable


class TallyError(Exception):
    """A refusal a person can act on; `exit_code` is 2 for wrong use and 1 when the answer is no."""

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        pipeline: str | None = None,
        field: str | None = None,
        cure: str | None = None,
        where: str | None = None,
    ) -> None:
        self.message, self.pipeline, self.field, self.cure, self.where = message, pipeline, field, cure, where
        head = ": ".join([*([printable(where)] if where else []), *(named(part) for part in (pipeline, field) if part)])
        text = f"{head}: {message}" if head else message
        super().__init__(f"{text}\n  cure: {cure}" if cure else text)

    def as_dict(self) -> dict[str, str]:
        parts = {
            "error": self.message,
            "pipeline": self.pipeline,
            "field": self.field,
            "cure": self.cure,
            "where": self.where,
        }
        return {name: value for name, value in parts.items() if value}


class DefinitionError(TallyError):
    """A definition that breaks its contract; `where` is file:line."""


class AnswerIsNo(TallyError):
    """Right use, but the answer is no: it does not reconcile, cannot replay, or data is gone."""

    exit_code = 1


class NotAgain(AnswerIsNo):
    """What would go the same way each time: nobody tries it again before a person has seen to it."""


class DataLost(AnswerIsNo):
    """Offsets that something still needs are gone, or a topic is not the one it was."""


class StreamFailed(TallyError):
    """A stream's query ended for a reason that may pass by itself: it is tried again, for as long as it takes."""

    exit_code = 1
