"""Opens what attempts need: local sandboxes, and the agent, limits and reward of a recipe."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from actors.agents.agent import Agent
from actors.agents.registry import make_agent
from actors.agents.settings import ToolsetKind
from actors.harnesses.installation import require_installed
from actors.rewards.composite import open_reward
from actors.workers.settings import WorkerSpec
from launch.actor_group.specs.worker_spec import BufferAddress, worker_spec
from launch.config import RunConfig
from launch.evaluation.solvers.solver import Solver
from launch.evaluation.standalone.attempt_runner import EvaluationContext
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import WorkerShare
from launch.run_records.run_directory import RunDirectory
from sandbox.browser.installation import require_browser
from sandbox.host_record import current_host, require_answering_engine
from sandbox.pool.sandbox_pool import SandboxPool

OpenSolver = Callable[[WorkerSpec, Agent], AbstractAsyncContextManager[Solver]]


@asynccontextmanager
async def open_evaluation_context(
    config: RunConfig,
    directory: RunDirectory,
    concurrency: int,
    open_solver: OpenSolver,
    *,
    greedy: bool = False,
    terminals: Path | None = None,
) -> AsyncGenerator[EvaluationContext]:
    """Open up to ``concurrency`` sandboxes, named after ``directory``.

    Raises UserError without a Docker engine, or if the harness or the browser is not installed."""
    host = require_answering_engine(current_host())
    if (harness := config.agent.published_harness) is not None:
        require_installed(host.home, harness)
    if config.agent.toolset is ToolsetKind.BROWSER:
        require_browser(host.home)
    settings = worker_spec(
        config,
        directory,
        directory.path,
        "evaluate",
        ClusterNode("node-0", "", "127.0.0.1"),
        buffer=BufferAddress("", None),
        share=WorkerShare(concurrency, config.sandbox.start_concurrency),
    )
    agent = make_agent(settings.agent)
    async with (
        open_reward(settings.reward.without_judge()) as reward,
        SandboxPool(settings.pool, host) as pool,
        open_solver(settings, agent) as solver,
    ):
        yield EvaluationContext(pool, settings, agent.tools, solver, reward, greedy, terminals)
