"""What makes rows of a record's bytes, as a short text: rows of another one are decoded again before they count."""

from __future__ import annotations

import hashlib
import json

from tally.base.duration import millis, parse_duration
from tally.base.settings import settings
from tally.catalog.spec import Topic

# Grows when decode gives the same bytes another row or another reason.
ENGINE = 2


def of(topic: Topic) -> str:
    """ "c" and 12 hex digits over all that decode asks of a topic's definition and of the settings."""
    meaning = {
        "engine": ENGINE,
        "columns": [[field.name, field.type, field.required] for field in topic.schema],
        "event_time": topic.event_time,
        "unique": topic.unique,
        "skew": millis(parse_duration(settings().skew, field="TALLY_SKEW")),
    }
    return "c" + hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:12]
