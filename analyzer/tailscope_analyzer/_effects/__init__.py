"""Which attribute values slow requests have in common: effects in ms, with control of false claims.

Owns `find_effects`: attributes and derived facts of an `Evidence` become candidates, candidates are tested,
what others explain is dropped, and what is left gets its milliseconds. An effect is an association; why it
is so is said by causes.

1. Candidates (`_candidates`): each value of a text, each of a few cuts of a number, and first or changed
   values. Ids and measured times are left out, with a reason.
2. Slow (`_classes`): the slowest 5 % of each class of alike requests (operation, model, input tokens), so
   that what asks for more is not held against those who ask. What classes are made of is held against all
   requests; what goes exactly with them is another name of it.
3. Chance (`_chance`, `_shifts`): Fisher's exact test, Benjamini and Hochberg's procedure at q = .05; values
   that come in runs must beat the shifts in time of all of them together.
4. Pruning (`_pruning`, `_refine`): the strongest is kept, a number at its exact cut; its requests are set
   aside, and the others are tested again. Pairs of what is left.
5. Amount (`_amount`): what requests with the value take beyond alike ones without it, in the tail.
"""

from __future__ import annotations

from tailscope_analyzer._effects._effect import Effect, Effects
from tailscope_analyzer._effects._find import find_effects

__all__ = ["Effect", "Effects", "find_effects"]
