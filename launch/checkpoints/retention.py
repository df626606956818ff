"""Which checkpoints stay.  Pure.

A run goes on from one of the newest ``keep``: what the journal still needs follows the oldest of those.  What stays
for longer (the first, every so many steps, the best) can be replayed, evaluated and exported, not gone on with: the
payloads of the steps after it are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from launch.config import RunConfig


@dataclass(frozen=True, slots=True)
class Retention:
    keep: int
    """Newest ones; at least 1."""
    keep_first: bool = False
    """That of step 0."""
    every_steps: int = 0
    """Those of steps that this divides; 0 for none."""
    keep_best: bool = False
    """The one with the highest score of those that have one, the later of equals, and one whose score is awaited."""

    def steps_to_keep(
        self, steps: Sequence[int], scores: Mapping[int, float], awaited: Collection[int] = ()
    ) -> set[int]:
        """Of ``steps``, those that stay; an evaluation of the ``awaited`` is under way."""
        found = set(sorted(steps)[-self.keep :])
        if self.keep_first:
            found |= {0} & set(steps)
        if self.every_steps:
            found |= {step for step in steps if step and step % self.every_steps == 0}
        if self.keep_best:
            found |= set(awaited) & set(steps)
            found |= {best} if (best := best_step(steps, scores)) is not None else set()
        return found


def best_step(steps: Iterable[int], scores: Mapping[int, float]) -> int | None:
    """Of ``steps`` that have a score, the one with the highest, the later of equals."""
    return max((step for step in steps if step in scores), key=lambda step: (scores[step], step), default=None)


def checkpoint_retention(config: RunConfig) -> Retention:
    checkpoint = config.checkpoint
    return Retention(
        checkpoint.keep, checkpoint.keep_first, every_steps=checkpoint.keep_every_steps, keep_best=checkpoint.keep_best
    )
