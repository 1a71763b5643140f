"""A definition or a setting that changes between two batches: an archive decoded under another contract."""

from __future__ import annotations

import random

from faults.planted.plant import Harm
from faults.planted.stage import Stage


def edited(old: str, new: str, *, restored: bool = False) -> Harm:
    """Text of topics.py that must be there, replaced."""

    def harm(stage: Stage, rng: random.Random) -> None:
        file = stage.catalogue / "topics.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    return harm


def nothing(stage: Stage, rng: random.Random) -> None:
    """No harm: the schedule must find nothing. A setting may be another one."""
