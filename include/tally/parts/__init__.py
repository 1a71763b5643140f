"""A pipeline's function in two: parts of its events that add up, and what finishes them; or why there are none."""

from tally.parts.combine import in_two
from tally.parts.evaluate import Evaluation
from tally.parts.function import Function
from tally.parts.made_here import MadeHere
from tally.parts.merge import merged
from tally.parts.operations import Unknown
from tally.parts.rules import Refusal
from tally.parts.split import Split
from tally.parts.taking import Taking

__all__ = [
    "Evaluation",
    "Function",
    "MadeHere",
    "Refusal",
    "Split",
    "Taking",
    "Unknown",
    "in_two",
    "merged",
]
