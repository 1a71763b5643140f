"""A stream that keeps records waiting for longer than people were promised is an incident, until it is no more."""

from __future__ import annotations

from collections.abc import Iterable

from tally.catalog.duration import from_millis, iso, millis, parse_duration
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import incidents, ledger, streams
from tally.control.store import now_ms
from tally.errors import TallyError
from tally.settings import settings
from tally.sources.kafka import HURRY, begin_offsets, offsets_before

STALE = "stale"


def judge(pipelines: Iterable[Pipeline] | None = None) -> list[str]:
    """Open an incident for each stream that is behind, and close it for each that is not; the names of those behind."""
    if not settings().freshness:
        return []
    before = now_ms() - millis(parse_duration(settings().freshness, field="TALLY_FRESHNESS"))
    stale = []
    for pipeline in pipelines if pipelines is not None else catalogue().pipelines.values():
        if streams.wanted(pipeline.name)["state"] != "running":
            incidents.close(pipeline.name, STALE, done="a person stopped the stream")
            continue
        try:
            count = waiting(pipeline, before)
        except TallyError as error:
            if error.field == "TALLY_KAFKA":
                break  # nothing is known of any stream; each would wait as long for an answer
            continue
        if count:
            said = f"{count:,} records that came before {iso(from_millis(before))} are not in its table"
            promise = f"promised: within {settings().freshness}"
            incidents.report(pipeline.name, STALE, f"{said} ({promise})", cure="tally status says why, and what to do")
            stale.append(pipeline.name)
        else:
            incidents.close(pipeline.name, STALE, done="the stream has caught up")
    return stale


def waiting(pipeline: Pipeline, before: int) -> int:
    """Records that the broker had before a time, and that no micro-batch of this version holds."""
    newest, total = ledger.newest(pipeline.name, pipeline.version), 0
    for topic in pipeline.reads:
        applied = newest.ends(topic.name) if newest else {}
        begin = begin_offsets(topic.name, HURRY)
        for partition, end in offsets_before(topic.name, before, HURRY).items():
            total += max(0, end - applied.get(partition, begin.get(partition, 0)))
    return total
