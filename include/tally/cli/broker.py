"""`tally up` and `tally down`."""

from __future__ import annotations

from tally.cli.output import Json, note, say, show


def up(json: Json = False) -> None:
    """Start this TALLY_HOME's broker, or find it running, and make the topics; with TALLY_KAFKA, use that cluster."""
    from tally.embedded.broker import up as bring_up

    state = bring_up()
    if state.note:
        note(state.note)
    topics = ", ".join(state.topics) or "no topics"
    show(state.as_dict(), json, lambda: say(f"Kafka at {state.bootstrap}: {topics}"))


def down(json: Json = False) -> None:
    """Stop everything that runs for this TALLY_HOME, the broker last; `tally up` goes on from there."""
    from tally.embedded.broker import down as bring_down

    stopped = bring_down()
    words = f"stopped: {', '.join(stopped)}" if stopped else "nothing was running"
    show({"stopped": stopped}, json, lambda: say(words))
