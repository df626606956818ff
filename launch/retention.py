"""Which checkpoints stay.  Pure.

A run goes on from one of the newest ``keep``: what the journal still needs follows the oldest of those.  What stays
for longer (the first, every so many steps, the best) can be replayed, evaluated and exported, not gone on with: the
payloads of the steps after it are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    keep: int
    """Newest ones; at least 1."""
    first: bool = False
    """That of step 0."""
    every_steps: int = 0
    """Those of steps that this divides; 0 for none."""
    best: bool = False
    """The one with the highest score of those that have one, the later of equals."""

    def kept(self, steps: Sequence[int], scores: Mapping[int, float]) -> set[int]:
        """Of ``steps``, those that stay."""
        found = set(sorted(steps)[-self.keep :])
        if self.first:
            found |= {0} & set(steps)
        if self.every_steps:
            found |= {step for step in steps if step and step % self.every_steps == 0}
        scored = [step for step in steps if step in scores]
        if self.best and scored:
            found.add(max(scored, key=lambda step: (scores[step], step)))
        return found
