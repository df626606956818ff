"""A step's facts, as a driver would write them, for tests of their readers."""

from __future__ import annotations

from launch.run_records.step_facts import StepFacts
from learner.messages import TokenAccount


def make_step_facts(step: int, rewards: tuple[float, ...] = (0.0, 1.0, 0.5, 1.0)) -> StepFacts:
    """The facts of a step with three trained trajectories, one that was too stale, and tokens of two stalenesses."""
    return StepFacts(
        step=step,
        rewards=rewards,
        passed=sum(reward >= 1.0 for reward in rewards),
        zero_variance_groups=1,
        groups=2,
        trained=3,
        dropped={"all_stale": 1},
        staleness_histogram=(150, 50),
        token_account=TokenAccount((150, 60), (1.0, 0.5), ((100, 90), (110, 110)), {"masked": {"16": 10}}),
        dropped_tokens={"zero_variance": {"8": 80}},
        sampled_tokens=400,
        wait_s=0.5,
        step_s=1.5,
        pause_ms=7.25,
    )
