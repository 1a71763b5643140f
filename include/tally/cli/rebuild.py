"""`tally rebuild`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tally.cli.output import Json, say, show

if TYPE_CHECKING:
    from tally.speed.rebuild import Plan

Why = Annotated[str, typer.Option("--why", help="Kept with the new generation, and shown among the incidents.")]


def rebuild(pipeline: Annotated[str, typer.Argument(help="Whose stream.")], why: Why = "", json: Json = False) -> None:
    """Begin a stream anew from the offsets that Kafka still holds; sealed windows stay served from the batch."""
    from tally.catalog.load import catalogue
    from tally.control.streams import check_reason
    from tally.speed import rebuild as rebuilding

    wanted = catalogue().pipeline(pipeline)
    check_reason(why)
    with rebuilding.hold(wanted):
        planned = rebuilding.plan(wanted)
        if not json:
            print_plan(planned)
        closed = rebuilding.apply(planned, why)
    following = f"tally resume {pipeline}, or tally stream {pipeline}; then tally doctor {pipeline}"
    document = {**planned.as_dict(), "why": why, "incidents_closed": closed, "next": following}

    def lines() -> None:
        say(f"done: generation {planned.number} is made, {closed} incidents are closed")
        say(f"next: {following}")

    show(document, json, lines)


def print_plan(planned: Plan) -> None:
    """What will be done, and what cannot be."""
    told = planned.as_dict()
    say(f"{told['pipeline']} {told['version']}: generation {planned.number} reads {told['records']:,} records again")
    for topic, parts in planned.starts.items():
        ends = planned.ends[topic]
        for partition, start in parts.items():
            say(f"  {topic}, partition {partition}: offsets [{start:,}, {ends[partition]:,}) and what comes later")
    for topic, identity in planned.renewed.items():
        say(f"  {topic} was recreated: from now on it is the topic of id {identity}")
    if planned.lost:
        span = planned.span()
        say(
            f"  {len(planned.lost):,} windows from {span['from']} to {span['to']} are not sealed and may hold events "
            "from before these offsets: the stream cannot make them again; the batch has what it archived"
        )
    for topic, gaps in planned.unarchived.items():
        for partition, (start, to) in gaps.items():
            say(f"  in neither archive nor Kafka: {topic}, partition {partition}, offsets [{start:,}, {to:,})")
    say("  older rows of the stream's table go when it starts; sealed windows stay, from the batch")
