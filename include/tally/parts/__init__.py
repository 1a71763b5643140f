"""A pipeline's function in two: parts of its events that add up, and what finishes them; or why there are none."""

from tally.parts.combine import combinable, in_two
from tally.parts.evaluate import Evaluation
from tally.parts.merge import merged
from tally.parts.rules import Refusal
from tally.parts.split import Split
from tally.parts.taking import Taking

__all__ = ["Evaluation", "Refusal", "Split", "Taking", "combinable", "in_two", "merged"]
