"""Conservation: every archived record of a range is accounted for, and every offset of an ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline
from tally.control import runs
from tally.lake import delta
from tally.reconcile.accounts import Account
from tally.reconcile.cut import Cut
from tally.sources import archive
from tally.sources.columns import columns

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
        archived = delta.table(archive.path(topic), version)
        rows = columns(archived, topic, ["_ingest"], topic.event_time, ranges, who=cut.pipeline.name)
        totals["records"] += sum(batch.num_rows for batch in rows)
        refused = delta.table(archive.quarantine_path(topic))
        rows = columns(refused, topic, ["_ingest"], "_broker_time", ranges, who=cut.pipeline.name)
        totals["quarantined"] += sum(int((batch.column(0).to_numpy() <= ingested[topic.name]).sum()) for batch in rows)
        for place, number in account.places.items():
            totals[place] += number
    totals["records"] += totals["quarantined"]
    return {**totals, "balanced": sum(totals[name] for name in PLACES) == totals["records"]}


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
