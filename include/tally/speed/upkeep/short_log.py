"""The Delta log of a table that this process writes: read by its own Delta, and kept as short as a reader can bear.

Each append lists the log's folder: two days of a micro-batch a second make it 3.4 s instead of 0.15 (`bench log`).
"""

from __future__ import annotations

from deltalake import DeltaTable

from tally.base.failpoints import failpoint

KEPT_MS = 3_600_000
PROPERTIES = {
    # Both are made beside the micro-batches, by `shorten`; in a commit they would hold up its rows, for seconds.
    "delta.checkpointInterval": "1000000",
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": f"interval {KEPT_MS // 60_000} minutes",
    # Not above the log's. Files are kept for a day all the same: see keeper.vacuum_when_due.
    "delta.deletedFileRetentionDuration": f"interval {KEPT_MS // 60_000} minutes",
    "delta.dataSkippingNumIndexedCols": "4",
}


def shorten(path: str) -> None:
    """Write the log's checkpoint, and drop the entries before it that are older than the table keeps them."""
    table = DeltaTable(path)
    failpoint("speed.before_shorten")
    table.create_checkpoint()
    table.cleanup_metadata()
    failpoint("speed.after_shorten")
