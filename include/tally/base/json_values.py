"""What JSON has no number for, as text: the same wherever a value leaves Tally."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The value, or NaN, Infinity and -Infinity by name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
