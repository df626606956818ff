"""If these fail, a run starts from a warm model that its settings would not give, or trains one for nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.warm_start import _forget_killed, cache_key


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


def test_what_a_killed_run_left_half_written_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    dead = next(pid for pid in range(4_000_000, 5_000_000) if not Path(f"/proc/{pid}").exists())
    for name in (f"warm-start-ab.{dead}.partial", f"warm-start-ab.{os.getpid()}.partial", "warm-start-ab"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    _forget_killed(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"warm-start-ab", f"warm-start-ab.{os.getpid()}.partial"}
