"""The watch over the streams, in Airflow's triggerer: an event when one needs something, none while all is well.

This module is imported by the triggerer, so it must be in the installed package and not among the dags.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

log = logging.getLogger(__name__)
# A control store that does not answer is asked again after so long; the slow clock of the streams dag goes on.
TROUBLE_SECONDS = 5.0


class StreamsNeedAction(BaseEventTrigger):  # type: ignore[misc]
    """Looks once a second; an event names what was seen and what is needed. It never ends."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from tally.supervise.watch import LOOK_SECONDS, Watch  # parsing a dag opens no control store

        watch = Watch(tell=tell)
        while True:
            try:
                step = await asyncio.to_thread(watch.turn)
            except Exception as error:  # whatever it is: a watcher that ends is one that nobody replaces
                log.warning("cannot look at the streams: %s", str(error).splitlines()[0] if str(error) else error)
                await asyncio.sleep(TROUBLE_SECONDS)
                continue
            if step is not None:
                log.info("%s: %s", step.saw, step.kind)
                yield TriggerEvent({"saw": step.saw, "needs": step.kind})
            await asyncio.sleep(LOOK_SECONDS)


def tell() -> None:
    """Tell people from here: the run that else does so does not come."""
    from tally.orchestration.notify import notifiers
    from tally.supervise.send_notices import send_notices

    for line in send_notices(notifiers()):
        log.warning("%s", line)
