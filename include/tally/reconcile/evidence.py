"""What a comparison left behind, as three small tables to judge: totals, one row a slot, one row a difference.

The totals are counted here anew from the slots and the audit rows, so that a comparison which lost a side, or part of
its differences, does not vouch for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tally.base.duration import from_millis, iso
from tally.base.settings import settings
from tally.lake import delta
from tally.reconcile.causes import UNEXPLAINED
from tally.reconcile.comparison import Comparison

COLUMNS = ("window_start", "window_end", "key", "batch", "stream", "replayed", "cause", "explained")
SLOT = ("start", "end", "rows", "stream_rows", "digest", "closed", "unexplained", "unaccounted")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The tables of one comparison; `slots` holds the closed ones only, `start` in milliseconds."""

    totals: pd.DataFrame
    slots: pd.DataFrame
    differences: pd.DataFrame


def gather(compared: Comparison) -> Evidence:
    """The evidence of a comparison, from its slots and its rows in the audit table."""
    found = differences(compared.pipeline, compared.number)
    slots = pd.DataFrame([slot.as_json() for slot in compared.slots], columns=list(SLOT))
    found["slot"] = slot_of(found["window_start"], slots)
    for column in ("window_start", "window_end"):
        found[column] = [None if moment is None else iso(moment) for moment in found[column]]
    return Evidence(
        totals=pd.DataFrame([totals(compared, slots, found)]),
        slots=by_slot(slots, found),
        differences=found,
    )


def audit_path(pipeline: str) -> str:
    """The Delta table with every differing row of every comparison of a pipeline."""
    return settings().table("audit", pipeline)


def differences(pipeline: str, number: int) -> pd.DataFrame:
    """The audit rows of one comparison, windows as text; no rows where there is no table yet."""
    table = delta.table(audit_path(pipeline))
    if table is None:
        return pd.DataFrame(columns=list(COLUMNS), dtype=object)
    rows: pd.DataFrame = table.to_pandas(columns=list(COLUMNS), filters=[("reconciliation", "==", number)])
    rows = rows.sort_values(["explained", "window_start", "key"], ignore_index=True)
    plain: pd.DataFrame = rows.astype(object).where(rows.notna(), None)
    return plain


def slot_of(starts: pd.Series[Any], slots: pd.DataFrame) -> list[int]:
    """The slot of each window; -1 where it lies in none of those compared."""
    known = sorted(zip(slots["start"], slots["end"], strict=True))
    step = known[0][1] - known[0][0] if known else 1
    grid = {start for start, _ in known}
    cells = [-1 if moment is None else moment.value // 1_000_000 // step * step for moment in starts]
    return [cell if cell in grid else -1 for cell in cells]


def totals(compared: Comparison, slots: pd.DataFrame, found: pd.DataFrame) -> dict[str, int | bool | str]:
    """What the comparison counted beside what is counted anew."""
    stream_only = int(found["batch"].isna().sum())
    conserved = compared.conserved
    return {
        "windows": compared.windows,
        "equal_and_different": compared.equal + compared.different,
        "rows_of_both_sides": int(slots["rows"].sum()) + stream_only,
        "different": compared.different,
        "audit_rows": len(found),
        "unexplained": compared.unexplained,
        "unexplained_audit_rows": int((found["explained"] != True).sum()),  # noqa: E712  null is not explained either
        "unexplained_in_slots": int(slots["unexplained"].sum()),
        "outside_slots": int((found["slot"] == -1).sum()),
        "records_conserved": conserved is not None and conserved.balanced,
        "topics_out_of_balance": ", ".join(sorted(n for n, t in compared.ingest.items() if not t.balanced)) or "none",
    }


def by_slot(slots: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Each closed slot with the rows of both sides, and what of their distance the audit rows account for."""
    mine = slots[slots["closed"].astype(bool)].copy()
    explained = found[(found["explained"] == True) & (found["cause"] != UNEXPLAINED)]  # noqa: E712

    def per_slot(rows: pd.DataFrame) -> pd.Series[Any]:
        counted = rows.groupby("slot").size() if len(rows) else pd.Series(dtype="int64")
        return mine["start"].map(counted).fillna(0).astype("int64")

    only_batch, only_stream = per_slot(found[found["stream"].isna()]), per_slot(found[found["batch"].isna()])
    mine["window"] = [iso(from_millis(int(start))) for start in mine["start"]]
    mine["rows_missing"] = mine["rows"] - mine["stream_rows"]
    mine["rows_missing_by_key"] = only_batch - only_stream
    one_sided = (mine["rows"] == 0) != (mine["stream_rows"] == 0)
    uncaused = mine[["rows", "stream_rows"]].max(axis=1) - per_slot(explained)
    mine["one_sided_rows_without_cause"] = uncaused.where(one_sided, 0).clip(lower=0).astype("int64")
    return mine.reset_index(drop=True)
