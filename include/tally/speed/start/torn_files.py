"""Puts aside what a power cut left half written, where that is proven to lose and to double nothing.

Three files may be so. A plan (offsets/N) that cannot be read, of a micro-batch that neither commit log, ledger nor
table knows, was never run to its end: Spark plans it anew, from the end of the one before. An entry of the commit log
(commits/N) that cannot be read: Spark runs micro-batch N again by its plan, and where the table holds it already, it is
written into nothing. The newest entry of the table's log that cannot be read, and that ledger and commit log do not
know: its micro-batch is run again, or its fold done again. Whatever else is harmed is refused: see agreement.
"""

from __future__ import annotations

import logging
from pathlib import Path

from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import incidents
from tally.speed import checkpoint
from tally.speed.start import stored_state
from tally.speed.start.stored_state import StoredState

log = logging.getLogger(__name__)
CAUSE = "half-written file"


def heal(pipeline: Pipeline) -> list[str]:
    """Put aside what may be, and say so; the caller is the table's one writer. A line for each file."""
    done: list[str] = []
    while True:
        stored = stored_state.read(pipeline)
        line = table_entry(stored) or commit_entry(stored) or plan_entry(stored)
        if not line:
            return done
        done.append(line)
        log.warning("%s: %s", pipeline.name, line, extra={"pipeline": pipeline.name})
        incidents.report(pipeline.name, CAUSE, line, done=line)
        incidents.close(pipeline.name, CAUSE, done=line)


def plan_entry(stored: StoredState) -> str:
    """The newest plan, if it cannot be read and was never applied; with it what its run left in the state."""
    if not (stored.local and stored.plans) or stored.log.harmed is not None:
        return ""
    newest, sources = stored.plans[-1], stored.pipeline.reads
    fault = checkpoint.plan_fault(stored.root, newest, sources)
    if not fault or max([-1, *stored.commits]) >= newest or applied(stored) != newest - 1:
        return ""
    for file in sorted(Path(stored.root, "state").rglob("*.*")):
        version = file.name.split(".")[0]
        if version.isdigit() and int(version) > newest:  # micro-batch N makes version N + 1
            move(file, Path(stored.root, "aside", file.relative_to(stored.root)))
    move(Path(stored.root, "offsets", str(newest)), Path(stored.root, "aside", f"offsets-{newest}"))
    return f"offsets/{newest} {fault}; it was only planned: put aside, and planned anew"


def commit_entry(stored: StoredState) -> str:
    """The newest entry of the commit log, if it cannot be read and Spark will run what comes after the applied ones."""
    if not (stored.local and stored.plans and stored.commits) or stored.log.harmed is not None:
        return ""
    newest, last, sources = stored.commits[-1], stored.plans[-1], stored.pipeline.reads
    fault = checkpoint.commit_fault(stored.root, newest)
    if not fault or newest > last or checkpoint.plan_fault(stored.root, last, sources):
        return ""
    if applied(stored) not in (last - 1, last):  # what Spark runs again is the last plan
        return ""
    move(Path(stored.root, "commits", str(newest)), Path(stored.root, "aside", f"commits-{newest}"))
    return f"commits/{newest} {fault}: put aside, and micro-batch {last} is run again"


def table_entry(stored: StoredState) -> str:
    """The newest entry of the table's log, if it cannot be read and nobody counts on it."""
    log, table = stored.log, settings().table("speed", stored.pipeline.name, stored.pipeline.version)
    if stored.fresh or not stored.local or "://" in table or log.harmed is None or log.harmed != log.version:
        return ""
    known = stored.recorded is not None and stored.recorded.delta_version >= log.version
    if known or max([-1, *stored.commits]) > applied(stored):
        return ""
    move(Path(table, "_delta_log", f"{log.version:020d}.json"), Path(stored.root, "aside", f"delta-{log.version}.json"))
    return f"{log.wrong}; nothing was counted on it: put aside, and done again"


def applied(stored: StoredState) -> int:
    """The newest applied micro-batch of the checkpoint's generation; -1 where none is."""
    return stored.mine.batch if stored.mine is not None else -1


def move(file: Path, to: Path) -> None:
    """Move a file to where nothing is lost: beside an earlier one of the same name."""
    place, number = to, 1
    while place.exists():
        place, number = to.with_name(f"{to.name}.{number}"), number + 1
    place.parent.mkdir(parents=True, exist_ok=True)
    file.rename(place)
