"""A definition or a setting that changes between two batches: an archive decoded under another contract."""

from __future__ import annotations

import random

from faults.planted.plant import Harm, Still
from faults.planted.stage import Stage


def edited(old: str, new: str) -> Harm:
    """Text of topics.py that must be there, replaced. It stays so, and is no harm once the numbers are those of it."""

    def harm(stage: Stage, rng: random.Random) -> Still:
        file = stage.catalogue / "topics.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        return lambda: False

    return harm


def nothing(stage: Stage, rng: random.Random) -> Still:
    """A setting alone is another one."""
    return lambda: False
