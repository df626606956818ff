"""Settings of the evaluations of a run on held-out tasks: ``[evaluation]``."""

from __future__ import annotations

from protocol.run_directory.run_arguments import RunFolder
from protocol.settings import ConfigSection, CountInt, PositiveInt


class HeldOutEvaluationSettings(ConfigSection):
    tasks_per_family: CountInt = 8
    """Held-out tasks of each family, which are used neither in the warm start nor in training; 0 for no evaluation,
    unless ``data.held_out_ids`` names tasks."""
    attempts: PositiveInt = 3
    """Attempts at each task that are sampled at temperature 1; pass@1 is their mean."""
    greedy_attempts: CountInt = 1
    """Attempts at each task with greedy decoding."""
    before_training: bool = True
    """Whether the run is evaluated before training too, and not only after it."""
    before_from: RunFolder | None = None
    """Run, by directory or id, whose evaluation before training is reused if both start from the same weights."""
    every_steps: CountInt = 0
    """Number of optimizer steps between two online evaluations; 0 for none.  Each evaluates the weights of one step on
    an engine that is started for it, on GPUs with ``engine.tp`` of its own, while rollout continues.  With a colocated
    device it uses the existing engine, and the learner waits for its end (docs/evaluate.md)."""
    in_flight: PositiveInt = 4
    """Number of concurrent episodes of an online evaluation, in sandboxes in addition to those of training."""
