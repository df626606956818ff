"""Overrides that let a cluster's recipe run completely on two cores: a tiny model, small batches and short episodes.

Agent, tools, prompt, reward, shape, advantage, loss, penalty, mode and placement stay the recipe's; only sizes, paths
and times differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.data.demo.model import build_demo_model
from launch.settings.data import ModelSettings
from protocol.files.filesystem import build_folder

POSITIONS = 8192
"""Number of positions, enough for the first prompt of every agent in tokens of about two letters."""
TINY_MODEL = ModelSettings(hidden=64, intermediate=128, heads=2)

_EVERYWHERE = (
    "run.disk_reserve_mb=64",
    "stop.after_epochs=0",
    "cluster.nodes=1",
    "agent.context_tokens=6144",
    "agent.max_new_tokens=96",
    "agent.max_turns=2",
    "agent.time_limit_s=60",
    "rollout.groups_per_step=2",
    "rollout.group_size=4",
    "rollout.workers_per_node=1",
    "rollout.episodes_per_worker=8",
    "rollout.in_flight=0",
    "rollout.acquire_timeout_s=120",
    "rollout.cleanup_timeout_s=15",
    "rollout.episode_deadline_s=1500",
    "engine.count=1",
    "engine.tp=1",
    "engine.device=cpu",
    "engine.dtype=float32",
    "engine.max_total_tokens=32768",
    "engine.max_running=8",
    "engine.request_timeout_s=120",
    "sandbox.capacity_per_node=8",
    "sandbox.start_concurrency=2",
    "sandbox.command_timeout_s=10",
    "sandbox.grade_timeout_s=120",
    "sandbox.heartbeat_timeout_s=150",
    "sandbox.max_lifetime_s=1800",
    "buffer.budget_bytes=67108864",
    "buffer.max_trajectory_bytes=262144",
    "learner.ranks=1",
    "learner.tp=1",
    "learner.cp=1",
    "learner.sequence_parallel=false",
    "learner.distributed_optimizer=false",
    "learner.device=cpu",
    "learner.dtype=float32",
    "learner.micro_batch_tokens=8192",
    "checkpoint.every_steps=1",
    "evaluation.tasks_per_family=0",
    "evaluation.before_training=false",
    "evaluation.every_steps=0",
    "monitor.enabled=false",
)
_ALONE: Mapping[str, Sequence[str]] = {
    "grpo_tcr_qwen3_4b": (
        "learner.minibatches=2",  # of one prompt each, as it has them
        "shaping.overlong_tokens=192",  # what two turns may have, so that the penalty begins at one
        "shaping.overlong_buffer=96",
    ),
    "demo": (
        "warm_start.enabled=false",
        "data.held_out_family=",
        "proof.min_improvement=0",
        "proof.min_final_pass_at_1=0",
    ),
    "seta_miles_multinode": ("cluster.nodes=2",),
    "openclaw_terminal": ("sandbox.provider=docker",),
    "art_liveweb": (  # a browser is large
        "agent.observation_chars=1500",
        "rollout.groups_per_step=1",
        "rollout.group_size=4",
        "rollout.episodes_per_worker=4",
    ),
}


def tiny_overrides(recipe: str) -> tuple[str, ...]:
    """Return ``section.key=value`` for each key that differs from ``recipe``; ``model.path`` and ``data.path`` have
    to be given too.
    """
    return (*_EVERYWHERE, *_ALONE.get(recipe, ()))


def build_tiny_model(folder: Path) -> None:
    """Write an untrained model that every recipe can use."""
    with build_folder(folder) as partial:
        build_demo_model(partial, TINY_MODEL, seed=0, positions=POSITIONS)
