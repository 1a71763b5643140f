"""Records that a stream read and retention ate before the archive's first ingest: the batch can never count them."""

from __future__ import annotations

from tally.catalog.load import catalogue
from tally.catalog.spec import Topic
from tally.control import incidents, ledger

CAUSE = "records never archived"


def tell(topic: Topic, begins: dict[int, int]) -> None:
    """Open an incident for each stream that began before the archive can, with each range that the archive lacks."""
    for pipeline in catalogue().readers(topic.name):
        first = next(iter(ledger.read(pipeline.name, pipeline.version, last=0)), None)
        read = first.ranges.get(topic.name, {}) if first else {}
        gone = [
            f"topic {topic.name}, partition {partition}, offsets [{start}, {begins[partition]})"
            for partition, (start, _) in sorted(read.items())
            if begins.get(partition, 0) > start
        ]
        if gone:
            incidents.report(
                pipeline.name,
                CAUSE,
                f"records are gone: {'; '.join(gone)} were eaten by retention before the archive read them",
                cure=f"lengthen the topic's retention; tally plan {pipeline.name} names the windows that this touches",
            )
