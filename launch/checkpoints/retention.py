"""The rule which checkpoints stay on disk.  Pure.

A run resumes from one of the newest ``keep`` checkpoints: the journal keeps what the oldest of those needs.
Checkpoints that stay longer (the first, every n-th step, the best) can be replayed, evaluated and exported but not
resumed from, because the payloads of the steps after them are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from launch.settings.checkpoint import RetentionSettings


def select_steps_to_keep(
    retention: RetentionSettings, steps: Sequence[int], scores: Mapping[int, float], awaited: Collection[int] = ()
) -> set[int]:
    """Return those of ``steps`` that stay; the evaluation of the ``awaited`` ones is still running."""
    kept = set(sorted(steps)[-retention.keep :])
    if retention.keep_first:
        kept |= {0} & set(steps)
    if retention.keep_every_steps:
        kept |= {step for step in steps if step and step % retention.keep_every_steps == 0}
    if retention.keep_best:
        kept |= set(awaited) & set(steps)
        kept |= {best} if (best := best_step(steps, scores)) is not None else set()
    return kept


def best_step(steps: Iterable[int], scores: Mapping[int, float]) -> int | None:
    """Return the step with the highest score, the later one of equals; None if no step has a score."""
    return max((step for step in steps if step in scores), key=lambda step: (scores[step], step), default=None)
