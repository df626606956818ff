"""If these fail, a run starts from a warm model that its settings would not give, or trains one for nothing."""

from __future__ import annotations

import pytest

from launch.config import load_recipe
from launch.warm_start import cache_key


@pytest.mark.parametrize(
    "change",
    [
        *("learner.betas=[0.8, 0.9]", "learner.clip_grad=0.5", "learner.weight_decay=0.1", "learner.adam_eps=1e-6"),
        *("learner.threads=2", "learner.dtype=bfloat16", "learner.micro_batch_tokens=4096", "learner.ranks=2"),
        *("run.seed=1", "warm_start.lr=1e-3", "model.layers=1", 'agent.done_text="ready"'),
    ],
)
def test_what_the_warm_start_reads_makes_another_model(change: str) -> None:
    assert cache_key(load_recipe("demo", [change])) != cache_key(load_recipe("demo"))


@pytest.mark.parametrize(
    "change", ["run.control=lr0", "run.steps=3", "learner.lr=1e-5", "learner.eps_high=0.2", "learner.publish_every=2"]
)
def test_what_only_training_on_rewards_reads_does_not(change: str) -> None:
    assert cache_key(load_recipe("demo", [change])) == cache_key(load_recipe("demo"))
