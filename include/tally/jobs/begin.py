"""Where a pipeline's numbers begin, and a person's word on it, written down where incidents are."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Any

from tally.base.duration import from_millis, iso, parse_instant, to_millis
from tally.base.failpoints import failpoint
from tally.catalog.spec import Pipeline, Topic
from tally.control import beginnings, incidents, seals
from tally.control.beginnings import Beginning, Missed, reach
from tally.control.streams import check_reason
from tally.host import lock

CAUSE = "the numbers' beginning was set"


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What is known of a pipeline's beginning, and how many of its slots are partial."""

    pipeline: Pipeline
    beginning: Beginning
    partial: int

    @property
    def lacking(self) -> list[Missed]:
        """The missed offsets that windows may lack which a person's word makes whole."""
        at, missed = self.beginning.at, self.beginning.missed
        if at is None or self.beginning.said is None:
            return []
        return [one for one in missed if at < one.before(self.topic(one)) + reach(self.pipeline, one.topic)]

    def topic(self, missed: Missed) -> Topic:
        return next(topic for topic in self.pipeline.reads if topic.name == missed.topic)

    def as_json(self) -> dict[str, Any]:
        """The beginning as `tally begin --json` prints it."""
        known, said = self.beginning, self.beginning.said
        return {
            "pipeline": self.pipeline.name,
            "version": self.pipeline.version,
            "begins": moment(known.at),
            "whole_from": moment(known.whole_from),
            "said": said and {"at": moment(said.from_ms), "by": said.by, "why": said.why, "when": moment(said.at)},
            "missed": [one.as_dict(self.topic(one)) for one in known.missed],
            "may_lack": [one.as_dict(self.topic(one)) for one in self.lacking],
            "partial": self.partial,
        }


def moment(ms: int | None) -> str | None:
    return None if ms is None else iso(from_millis(ms))


def begin(pipeline: Pipeline, at: str, why: str) -> Begun:
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
    return known(pipeline)


def known(pipeline: Pipeline) -> Begun:
    """What is known of the beginning."""
    partial = seals.counts(pipeline.name, pipeline.version).get("partial", 0)
    return Begun(pipeline=pipeline, beginning=beginnings.of(pipeline), partial=partial)
