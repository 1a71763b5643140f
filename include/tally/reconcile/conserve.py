"""Conservation: every archived record of a range is accounted for, and every offset of an ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tally import lake
from tally.catalog.duration import from_millis
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Pipeline
from tally.control import runs
from tally.reconcile.accounts import Account
from tally.reconcile.cut import Cut
from tally.sources import archive, manifest

PLACES = ("aggregated", "late", "duplicate", "quarantined", "filtered", "skipped", "in_flight", "applied_twice")


def conservation(cut: Cut, accounts: Sequence[tuple[Sequence[Range], Account]]) -> dict[str, Any]:
    """records = aggregated + late + duplicate + quarantined + filtered + skipped + in flight + applied twice.

    `records` are counted in the files of archive and quarantine by a reader of its own; the places are those that the
    replay gave each event, in Spark. A refused record often has no event time: it belongs to the range in which the
    broker took it.
    """
    totals = dict.fromkeys(("records", *PLACES), 0)
    ingested = ingests(cut)
    for topic, (ranges, account) in zip(cut.pipeline.reads, accounts, strict=True):
        version = cut.stated.versions[topic.name]
        try:
            totals["records"] += counted(lake.table(archive.path(topic), version), topic.event_time, ranges)
            refused = lake.table(archive.quarantine_path(topic))
            totals["quarantined"] += counted(refused, "_broker_time", ranges, until=ingested[topic.name])
        except FileNotFoundError:
            raise manifest.unreadable(topic, cut.pipeline.name) from None
        for place, number in account.places.items():
            totals[place] += number
    totals["records"] += totals["quarantined"]
    return {**totals, "balanced": sum(totals[name] for name in PLACES) == totals["records"]}


def counted(table: DeltaTable | None, column: str, ranges: Sequence[Range], until: int | None = None) -> int:
    """How many rows of a table have a time in the ranges, those of later ingests left out; read without Spark."""
    if table is None or not ranges:
        return 0
    wanted = merge(ranges)
    bounds = np.array(wanted, dtype="int64").reshape(-1) * 1000
    first, last = from_millis(wanted[0][0]), from_millis(wanted[-1][1] - 1)
    days = f"_date >= DATE '{first:%Y-%m-%d}' AND _date <= DATE '{last:%Y-%m-%d}'"
    rows = table.to_pyarrow_dataset(file_pruning_predicate=days).scanner(columns=[column, "_ingest"])
    total = 0
    for batch in rows.to_batches():
        times = batch.column(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        inside = np.searchsorted(bounds, times, side="right") % 2 == 1
        if until is not None:
            inside &= batch.column(1).to_numpy(zero_copy_only=False) <= until
        total += int(inside.sum())
    return total


def ingests(cut: Cut) -> dict[str, int]:
    """The number of each topic's last ingest that the compared batch table was stated from."""
    last = {}
    for topic, version in cut.stated.versions.items():
        numbers = [row["seq"] for row in runs.ingest_history(topic) if row["delta_version"] <= version]
        last[topic] = max(numbers, default=-1)
    return last


def ingest_balance(pipeline: Pipeline) -> dict[str, Any]:
    """Per topic, all offsets ever ingested: archived + quarantined + gaps, and whether that leaves none over.

    Each ingest begins where the one before it ended: one that left offsets out would balance by itself.
    """
    found = {}
    for topic in pipeline.reads:
        history = runs.ingest_history(topic.name)
        quarantined: dict[str, int] = {}
        for row in history:
            for reason, number in row["quarantined"].items():
                quarantined[reason] = quarantined.get(reason, 0) + number
        records = sum(to - start for row in history for start, to in row["ranges"].values())
        archived_rows, gaps = (sum(row[name] for row in history) for name in ("archived", "gaps"))
        found[topic.name] = {
            "records": records,
            "archived": archived_rows,
            "quarantined": quarantined,
            "gaps": gaps,
            "balanced": joined(history) and gaps >= 0 and records == archived_rows + sum(quarantined.values()) + gaps,
        }
    return found


def joined(history: Sequence[dict[str, Any]]) -> bool:
    """Whether the offsets of ingests follow on one another in each partition, none left out or taken twice."""
    reached: dict[str, int] = {}
    for row in history:
        for partition, (start, to) in row["ranges"].items():
            if reached.get(partition, start) != start:
                return False
            reached[partition] = to
    return True
