"""Where attempts are run: this machine's sandboxes, by a run's own settings of agent, limits and reward."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from actors.agents.agent import Agent
from actors.agents.choice import agent_of
from actors.rewards.rewarding import open_rewards
from actors.worker import WorkerSettings
from launch.config import RunConfig
from launch.evaluate.players import Player
from launch.evaluate.runner import Ground
from launch.nodes import Node
from launch.rundir import RunDirectory
from launch.settings import Share, worker_settings
from sandbox.host import answering, current_host
from sandbox.pool import SandboxPool

OpensPlayer = Callable[[WorkerSettings, Agent], AbstractAsyncContextManager[Player]]


@asynccontextmanager
async def open_ground(
    config: RunConfig, directory: RunDirectory, at_once: int, player: OpensPlayer, *, terminals: Path | None = None
) -> AsyncGenerator[Ground]:
    """``directory`` names the sandboxes; ``at_once`` of them.  Raises UserError where no Docker engine answers."""
    host = answering(current_host())
    settings = worker_settings(
        config,
        directory,
        directory.path,
        "evaluate",
        Node("node-0", "", "127.0.0.1"),
        endpoint="",
        keys=None,
        share=Share(at_once, config.sandbox.start_concurrency),
    )
    agent = agent_of(settings.agent)
    async with (
        open_rewards(settings.reward) as rewards,
        SandboxPool(settings.pool, host) as pool,
        player(settings, agent) as playing,
    ):
        yield Ground(pool, settings, agent.tools, playing, rewards.unjudged(), terminals)
