"""What the checkpoint of a topic's stream plans: where it begins, which micro-batch is due, in which order it reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.control.ledger import NEAR, Ranges
from tally.sources import kafka
from tally.speed import checkpoint
from tally.speed.shared.inbox import Taken

# The ids of a micro-batch lie in the driver's memory while it runs: 110 bytes each, a text of 36 letters 240.
MOST_IDS = 2_000_000


def most_offsets(topic: Topic) -> int:
    """How many records of a topic a micro-batch takes at most."""
    most = settings().max_offsets_per_trigger
    return min(most, MOST_IDS) if topic.unique else most


def planned(taken: Taken) -> checkpoint.Planned:
    """A micro-batch as a member's commit tells of it."""
    return checkpoint.Planned(
        batch=taken.batch,
        ranges=taken.ranges,
        late_watermark=taken.late_watermark,
        watermark=taken.clock.watermark,
        ids=NEAR,
    )


def read_in_order(ranges: Ranges) -> Ranges:
    """Ranges with the partitions in the order of their numbers: of two copies of an id, the first one stays."""
    return {topic: dict(sorted(parts.items())) for topic, parts in ranges.items()}


def check_follows(topic: Topic, before: Taken | None, batch: int) -> None:
    """Refuse a micro-batch that is older than the inbox, or leaves some out."""
    reached = before.batch if before is not None else -1
    if batch != reached + 1:
        raise AnswerIsNo(
            f"the checkpoint of topic {topic.name} is at {batch}, its inbox at {reached}: one is an older copy",
            field="checkpoint",
            cure="put back the newest of both, or rebuild the streams of the topic from retained offsets",
        )


def first_offsets(root: str, topic: Topic) -> dict[str, int]:
    """Where the stream of a topic begins: the oldest retained offsets at its first start, kept from then on.

    In the place, and in the form, in which Spark's own Kafka source keeps them.
    """
    known = checkpoint.first_offsets(root, [topic.name])
    if not known:
        known = {topic.name: kafka.begin_offsets(topic.name)}
        told = {topic.name: {str(partition): offset for partition, offset in sorted(known[topic.name].items())}}
        folder = Path(root, "sources", "0")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".0.draft").write_text(f"v1\n{json.dumps(told)}")
        os.replace(folder / ".0.draft", folder / "0")
    return {str(partition): offset for partition, offset in sorted(known[topic.name].items())}
