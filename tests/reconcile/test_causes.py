"""Every cause that anything can be given is one that a person can read about, and joined ones are read one by one."""

from __future__ import annotations

import pytest

from tally.kinds import fates
from tally.reconcile import explain
from tally.reconcile.causes import MEANING, UNEXPLAINED, meaning


@pytest.mark.parametrize(
    "word", [fates.LATE, fates.DUPLICATE, fates.SKIPPED, fates.IN_FLIGHT, fates.TWICE, explain.SPLIT, UNEXPLAINED]
)
def test_what_may_lie_between_the_layers_has_a_meaning(word: str) -> None:
    assert MEANING[word] and meaning(word) == MEANING[word]


def test_several_causes_of_a_row_are_all_told() -> None:
    assert meaning("duplicate+late") == f"{MEANING['duplicate']}; {MEANING['late']}"


def test_a_word_that_is_no_cause_is_not_passed_over() -> None:
    assert meaning("late+moonlight") == f"{MEANING['late']}; not a known cause"
