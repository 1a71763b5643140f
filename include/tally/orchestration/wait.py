"""A batch's wait for the archives of its topics: in the triggerer, without a worker, and not for ever.

This module is imported by the triggerer, so it must be in the installed package and not among the dags. DAGs are parsed
with it, so the control store is imported only when there is something to look at.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tally.base.duration import from_millis, human, instant, iso
from tally.orchestration.ask import of_dag
from tally.orchestration.call import refusals
from tally.orchestration.graph import ARCHIVE

log = logging.getLogger(__name__)
# An archive run takes half a minute at least: a look every two seconds adds nothing to it that a person would see.
LOOK_SECONDS = 2.0


class ArchiveWait(BaseOperator):  # type: ignore[misc]
    """Is over once each topic's archive holds all that Kafka held at a moment; red, with the reason, if it does not."""

    template_fields: Sequence[str] = ("until",)

    def __init__(self, *, topics: Sequence[str], until: str, patience: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topics, self.until, self.patience = list(topics), until, patience

    def execute(self, context: Any) -> None:
        """Look once; where an archive is behind, say which DAG brings it and how that is, and leave the worker."""
        from tally.sources.reached import behind, said

        with refusals():
            moment = instant(self.until, "until")
            late = behind(self.topics, moment)
        if not late:
            return self.over()
        self.log.info("%s: waits for %s", said(late), iso(from_millis(moment)))
        for line in self.why(context, sorted(late)):
            self.log.info("%s", line)
        ends = time.time() + self.patience.total_seconds()
        self.defer(trigger=ArchiveReached(self.topics, moment, ends), method_name="go_on")

    def go_on(self, context: Any, event: dict[str, Any]) -> None:
        """After the wait: an answer that a person can act on where it was for nothing."""
        if not event["late"]:
            return self.over()
        causes = "; ".join(self.why(context, event["late"]))
        raise AirflowFailException(
            f"{event['said']}, and {self.until} was waited for, {human(self.patience)} long: "
            f"{causes}. Mend what keeps it and clear this task, or leave it: the next run does what was missed"
        )

    def over(self) -> None:
        self.log.info("the archive of %s holds all that Kafka held at %s", " and ".join(self.topics), self.until)

    def why(self, context: Any, topics: Sequence[str]) -> list[str]:
        """The DAG that brings each archive, and what Airflow knows of it that keeps it."""
        dags = [ARCHIVE.format(topic) for topic in topics]
        return [
            of_dag(context["ti"], dag) or f"look at the last run of {dag}: is it red, or was there none?"
            for dag in dags
        ]


class ArchiveReached(BaseTrigger):  # type: ignore[misc]
    """Looks every two seconds; one event, once all are there or the time is up (seconds since the epoch)."""

    def __init__(self, topics: Sequence[str], moment: int, ends: float) -> None:
        super().__init__()
        self.topics, self.moment, self.ends = list(topics), moment, ends

    def serialize(self) -> tuple[str, dict[str, Any]]:
        given = {"topics": self.topics, "moment": self.moment, "ends": self.ends}
        return f"{type(self).__module__}.{type(self).__qualname__}", given

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from tally.sources.reached import behind, said

        told = ""
        while True:
            try:
                late = behind(self.topics, self.moment, await asyncio.to_thread(marks.read))
            except Exception as error:  # whatever it is: the store may be back before the time is up
                log.warning("cannot look at the archives: %s", str(error).splitlines()[0] if str(error) else error)
                late = dict.fromkeys(self.topics)
            if not late or time.time() > self.ends:
                yield TriggerEvent({"late": sorted(late), "said": said(late)})
                return
            if said(late) != told:
                told = said(late)
                log.info("%s: waits for %s", told, iso(from_millis(self.moment)))
            await asyncio.sleep(LOOK_SECONDS)


class Marks:
    """How far all archives are: two hundred batches that wait in one triggerer ask the store once between them."""

    def __init__(self) -> None:
        self.lock, self.at, self.known = Lock(), 0.0, dict[str, int]()

    def read(self) -> dict[str, int]:
        """As it was half a look ago at most."""
        from tally.control import runs

        with self.lock:
            if time.monotonic() - self.at > LOOK_SECONDS / 2:
                self.known = runs.reached_by_topic()
                self.at = time.monotonic()
            return self.known


marks = Marks()
