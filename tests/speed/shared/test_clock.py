"""The watermark of a topic is that of its slowest partition that is not silent."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tally.speed.shared.clock import Clock, Seen

MINUTE = 60_000
BOTH = {0: 0, 1: 0}


def seen(event: int, record: int | None = None, first: int | None = None) -> Seen:
    newest = event if record is None else record
    return Seen(event=event, record=newest, first=newest if first is None else first)


def test_the_least_of_the_partitions_rules() -> None:
    clock = Clock().after({0: seen(100_000), 1: seen(70_000)}, BOTH, 10_000, MINUTE)
    assert clock.watermark == 60_000


def test_a_partition_that_is_silent_for_long_is_left_out_until_it_speaks_again() -> None:
    clock = Clock().after({0: seen(0), 1: seen(0)}, BOTH, 0, MINUTE)
    clock = clock.after({0: seen(59_000)}, BOTH, 0, MINUTE)
    assert clock.watermark == 0, "it may only be slow"
    clock = clock.after({0: seen(61_000)}, BOTH, 0, MINUTE)
    assert clock.watermark == 61_000
    clock = clock.after({0: seen(90_000), 1: seen(65_000, 90_000)}, BOTH, 0, MINUTE)
    assert clock.watermark == 65_000


def test_silence_is_none_while_records_wait() -> None:
    clock = Clock().after({0: seen(0), 1: seen(0)}, BOTH, 0, MINUTE)
    clock = clock.after({0: seen(500_000)}, {0: 0, 1: 7}, 0, MINUTE)
    assert clock.watermark == 0


def test_a_partition_that_never_had_a_record_is_waited_for_and_then_left_out() -> None:
    clock = Clock().after({0: seen(30_000)}, BOTH, 0, MINUTE)
    assert clock.watermark == 0
    assert clock.after({0: seen(91_000)}, BOTH, 0, MINUTE).watermark == 91_000
    assert clock.after({0: seen(91_000)}, {0: 0, 1: 1}, 0, MINUTE).watermark == 0


def test_of_a_backlog_that_is_read_at_once_the_oldest_record_tells_how_long_another_partition_was_silent() -> None:
    assert Clock().after({0: seen(61_000, first=1_000)}, BOTH, 0, MINUTE).watermark == 0
    assert Clock().after({0: seen(61_000, first=999)}, BOTH, 0, MINUTE).watermark == 61_000


def test_a_clock_of_before_is_read() -> None:
    words = {"watermark": 5, "seen": {"0": {"event": 6, "record": 7}}, "begun": 4}
    assert Clock.of_words(words) == Clock(watermark=5, seen={0: seen(6, 7)}, begun=4)


def test_a_micro_batch_without_a_valid_record_moves_nothing() -> None:
    clock = Clock().after({0: seen(30_000)}, {0: 0}, 0, MINUTE)
    assert clock.after({}, {0: 0}, 0, MINUTE) == clock
    assert Clock().after({}, {0: 0}, 0, MINUTE) == Clock()


batches = st.lists(
    st.dictionaries(st.integers(0, 2), st.builds(seen, *[st.integers(0, 10**6)] * 3)),
    max_size=8,
)


@given(batches)
def test_it_never_falls_and_is_the_same_out_of_its_words(held: list[dict[int, Seen]]) -> None:
    clock = Clock()
    for batch in held:
        following = clock.after(batch, {0: 0, 1: 0, 2: 0}, 1000, MINUTE)
        assert following.watermark >= clock.watermark
        assert Clock.of_words(json.loads(json.dumps(following.as_words()))) == following
        clock = following
