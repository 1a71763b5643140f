"""Where a pipeline's numbers begin, as a document; and a person's word on it, written down where incidents are."""

from __future__ import annotations

import getpass
from typing import Any

from tally.base.duration import from_millis, iso, parse_instant, to_millis
from tally.base.failpoints import failpoint
from tally.catalog.spec import Pipeline
from tally.control import beginnings, incidents, seals
from tally.control.beginnings import Beginning, Missed, reach
from tally.control.streams import check_reason
from tally.host import lock

CAUSE = "the numbers' beginning was set"


def begin(pipeline: Pipeline, at: str, why: str) -> dict[str, Any]:
    """Let the numbers begin at a time, on a person's word; the beginning as it then is.

    Nobody seals meanwhile: what is sealed after it was sealed by the new word.
    """
    moment, by = to_millis(parse_instant(at, field="--at")), getpass.getuser()
    check_reason(why)
    with lock.table("batch", pipeline.name, pipeline.version):
        beginnings.say(pipeline, moment, by=by, why=why)
    failpoint("begin.after_say")
    said = f"windows that start at {iso(from_millis(moment))} or later count as whole; older ones stay partial"
    done = f"said by {by}" + (f": {why}" if why else "")
    incidents.report(pipeline.name, CAUSE, said, done=done)
    incidents.close(pipeline.name, CAUSE, done=done)
    return document(pipeline)


def document(pipeline: Pipeline) -> dict[str, Any]:
    """What is known of the beginning, and what the windows from it on may still lack."""
    found = beginnings.of(pipeline)
    topics = {topic.name: topic for topic in pipeline.reads}
    said = found.said
    return {
        "pipeline": pipeline.name,
        "version": pipeline.version,
        "begins": moment(found.at),
        "whole_from": moment(found.whole_from),
        "said": said and {"at": moment(said.from_ms), "by": said.by, "why": said.why, "when": moment(said.at)},
        "missed": [one.as_dict(topics[one.topic]) for one in found.missed],
        "may_lack": [one.as_dict(topics[one.topic]) for one in lacking(pipeline, found)],
        "partial": seals.counts(pipeline.name, pipeline.version).get("partial", 0),
    }


def lacking(pipeline: Pipeline, found: Beginning) -> list[Missed]:
    """The missed offsets that windows may lack which a person's word makes whole."""
    topics = {topic.name: topic for topic in pipeline.reads}
    if found.at is None or found.said is None:
        return []
    return [one for one in found.missed if found.at < one.before(topics[one.topic]) + reach(pipeline, one.topic)]


def moment(ms: int | None) -> str | None:
    return None if ms is None else iso(from_millis(ms))
