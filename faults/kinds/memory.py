"""The driver's heap is too small for the records that come: it must end at once, say so, and heal by the named cure."""

from __future__ import annotations

import json
import os
import time

from faults.kinds.records import allow_large
from faults.run import Run, quiet
from faults.stack import until
from faults.truth import SHAPES
from tally.control import streams
from tally.host import driver_files
from tally.lake.memory import OUT, STREAM

SMALL, SANE = "380m", "1200m"
# Large records are taken one by one: half a gigabyte is enough. Spark itself refuses so small a heap, unless it
# is told another size.
HEAPS = {STREAM: SMALL, "TALLY_SPARK_MEMORY": SANE, "TALLY_SPARK_CONF": "spark.testing.memory=600000000"}
LARGE = 15 << 20
BURST = 12
DEATH_SECONDS, WORD_SECONDS = 180.0, 120.0


def out(run: Run) -> None:
    """A burst of large valid records, then two drivers dead of it, the words that people read, and the cure."""
    allow_large(run)
    since = time.monotonic()
    for _ in range(BURST):
        send_large(run)
    if not until(lambda: (quiet(deaths) or 0) >= 2, DEATH_SECONDS):
        run.broken("I5", f"no two drivers died of a full heap in {DEATH_SECONDS:.0f} s")
        return
    run.result.notes.append(f"two drivers dead {time.monotonic() - since:.0f} s after the burst")
    for verb in (["status"], ["incidents"], ["doctor", run.stack.pipelines[0]]):
        until(lambda verb=verb: names_it(run, verb), WORD_SECONDS, 1.0)  # type: ignore[misc]
        if not names_it(run, verb):
            run.broken("I5", f"tally {' '.join(verb)} does not name memory and {STREAM}: {said(run, verb)}")
    run.result.notes.append(f"tally status: {[(row['state'], row['reason']) for row in run.stack.tally('status')]}")
    run.stack.stop_supervising()
    os.environ[STREAM] = SANE
    since = time.monotonic()
    run.stack.supervise()
    run.heals("heap full", since, by=f"{STREAM}={SANE}")
    if not until(lambda: quiet(deaths) == 0, WORD_SECONDS):
        run.broken("I5", f"it moves, and {deaths()} deaths are still told of")
    run.one_writer()


def deaths() -> int:
    """How many drivers in a row have died."""
    return int((streams.driver(driver_files.APP) or {}).get("deaths", 0))


def send_large(run: Run) -> None:
    """A large valid record for the first pipeline; the others go on while each driver lives."""
    with run.sender.guard:
        event = run.sender.made(run.sender.reached)
        facts = {"time": event["at"], "id": event["id"], "shop": event["shop"], "amount": event["amount"]}
        text = json.dumps({**event, "x": "y" * LARGE}).encode()
        run.sender.send(SHAPES[run.stack.pipelines[0]].topic, run.rng.randrange(2), text, kind="good", **facts)


def said(run: Run, verb: list[str]) -> str:
    return json.dumps(run.stack.tally(*verb))


def names_it(run: Run, verb: list[str]) -> bool:
    words = said(run, verb)
    return OUT in words and STREAM in words
