"""A new generation of a stream: it begins at the oldest retained offsets, with a new checkpoint and an empty table.

Its folder appears in one step, and that is all there is to making one. What older generations wrote goes from the table
in one commit when the new one first starts: the new state knows nothing of these rows, and would never correct them.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import streams
from tally.lake import delta, tables
from tally.speed import checkpoint
from tally.speed.start.stored_state import StoredState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
NOTE = "rebuilt.json"


def following(stored: StoredState) -> int:
    """The number of the generation after all that any trace is left of."""
    traces = [
        stored.generation,
        *(batch.generation for batch in (stored.recorded, stored.applied) if batch is not None),
    ]
    emptied = stored.log.newest("rebuild")
    return max([*traces, *([int(emptied.words["generation"])] if emptied else [])]) + 1


def make(pipeline: Pipeline, number: int, note: dict[str, Any], path: checkpoint.Chosen = "own") -> Path:
    """Make the folder of a generation, with its path and a note of why, by one rename, as the table's one writer."""
    folder = Path(checkpoint.folder(pipeline.name, pipeline.version, number))
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    (draft / NOTE).write_text(json.dumps(note, indent=1) + "\n")
    if path == "shared":
        (draft / checkpoint.SHARED).write_text(pipeline.reads[0].name)
    failpoint("rebuild.before_folder")
    draft.rename(folder)
    handle = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    failpoint("rebuild.after_folder")
    return folder


def put_broken_table_aside(stored: StoredState) -> Path | None:
    """Where a new generation begins and the table's log is harmed, move the table out of the way, whole.

    A log is known to be harmed on a local disk only: see delta.log.
    """
    where = settings().table("speed", stored.pipeline.name, stored.pipeline.version)
    if not stored.log.wrong:
        return None
    place = Path(f"{where}.aside-g{stored.generation}")
    while place.exists():
        place = place.with_name(f"{place.name}+")
    Path(where).rename(place)
    name = stored.pipeline.name
    log.warning(
        "%s: %s: the table is put aside as %s, and made anew", name, stored.log.wrong, place, extra={"pipeline": name}
    )
    return place


def empty_table(spark: SparkSession, stored: StoredState) -> bool:
    """Take out all rows, in one commit, before a generation's first micro-batch; an empty table stays as it is.

    From here on nothing compares with the older generations' micro-batches: see reconcile.cut.find.
    """
    pipeline, where = stored.pipeline, settings().table("speed", stored.pipeline.name, stored.pipeline.version)
    streams.show(pipeline.name, version=pipeline.version, generation=stored.generation)
    found = delta.table(where)
    if found is None or not found.file_uris():
        return False
    failpoint("rebuild.before_emptying")
    nothing = spark.read.format("delta").load(where).where("false")
    words = delta.words("rebuild", generation=stored.generation)
    tables.replace(nothing, where, words)
    failpoint("rebuild.after_emptying")
    return True
