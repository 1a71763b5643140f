"""Errors that are planted in the product's own data, from outside, and what its own schedule then says of them."""

from __future__ import annotations

import sys
from pathlib import Path

# The plain account of both layers is the tests': whoever writes it a third time makes a third one to keep right.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
