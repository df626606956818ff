"""The spec of a worker in tests."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from actors.agents.prompt import PromptTemplate
from actors.agents.settings import AgentSettings, AgentSpec
from actors.rewards.settings import RewardSettings, RewardSpec
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.workers.settings import WorkerSettings, WorkerSpec
from sandbox.pool.sandbox_pool import PoolSettings

PLAIN_AGENT = AgentSpec(AgentSettings(), PromptTemplate(""))
BINARY = RewardSpec("binary", RewardSettings())


def worker_spec(
    run_dir: Path = Path(),
    *,
    agent: AgentSpec = PLAIN_AGENT,
    acquire_timeout_s: float = 1.0,
    cleanup_timeout_s: float = 5.0,
) -> WorkerSpec:
    """``worker-0-0`` of the run ``r``, which runs two episodes at once in sandboxes of its own."""
    return WorkerSpec(
        name="worker-0-0",
        node="node-0",
        run_id="r",
        run_dir=run_dir,
        model_path="",
        endpoint="",
        curve=None,
        episodes=2,
        limits=WorkerSettings(
            acquire_timeout_s=acquire_timeout_s, cleanup_timeout_s=cleanup_timeout_s, send_deadline_s=1.0
        ),
        agent=agent,
        harness=HarnessSettings(),
        episode=EpisodeSettings(),
        reward=BINARY,
        reply_timeout_s=30.0,
        restart_timeout_s=0.0,
        command_timeout_s=1.0,
        grade_timeout_s=1.0,
        pool=cast("PoolSettings", None),
    )
