"""The one rule by which both the watcher and the actor decide."""

from __future__ import annotations

from typing import Any

import pytest

from tally.supervise.policy import MOST_DELAY_MS, SILENCE_MS, Seen, decide, delay_ms

LIVES: dict[str, Any] = {"app": "tally", "wanted": 2, "lives": True, "pid": 7, "silent": 2_000, "age": 600_000}
DEAD: dict[str, Any] = {**LIVES, "lives": False, "deaths": 0}


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (LIVES, "nothing"),
        ({**LIVES, "silent": SILENCE_MS + 1}, "replace"),
        ({**LIVES, "silent": SILENCE_MS + 1, "age": 5_000}, "nothing"),
        ({**LIVES, "silent": SILENCE_MS + 1, "age": None}, "replace"),
        ({**LIVES, "silent": -3_600_000}, "nothing"),
        ({**LIVES, "wanted": 0, "silent": SILENCE_MS + 1}, "replace"),
        (DEAD, "start"),
        ({**DEAD, "pid": None, "silent": None, "age": None}, "start"),
        ({**DEAD, "wanted": 0}, "nothing"),
        ({**DEAD, "uncounted": True, "deaths": 4, "retry_in": 60_000}, "start"),
        ({**DEAD, "deaths": 4, "retry_in": 60_000}, "nothing"),
        ({**DEAD, "deaths": 4, "retry_in": 0}, "start"),
    ],
)
def test_each_step_by_what_is_seen(seen: dict[str, Any], kind: str) -> None:
    step = decide(Seen(**seen))
    assert step.kind == kind
    assert step.saw


def test_the_delay_grows_is_capped_and_is_not_the_same_twice() -> None:
    assert delay_ms(1) == 0, "the first death is answered at once"
    for deaths in range(2, 40):
        asked = min(MOST_DELAY_MS, 2_000 * 2 ** (deaths - 2))
        found = {delay_ms(deaths) for _ in range(50)}
        assert all(0.8 * asked <= wait <= 1.2 * asked for wait in found)
        assert len(found) > 1
