"""Runs a worker's episodes: an agent or a harness in a sandbox, or an episode on an environment service."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from actors.agents.agent import Agent
from actors.engines.messages import GenerateFunction
from actors.rewards.composite import CompositeReward, RewardFunction
from actors.rollout.episode import run_agent_episode
from actors.rollout.grading import EpisodeContext
from actors.rollout.policy import make_sampling
from actors.rollout.recorder import EpisodeTelemetry
from actors.rollout.sandbox_terminal import SandboxTerminal, hold_terminal
from actors.rollout.terminal import EpisodeTerminal
from actors.rollout.timed_terminal import TimedTerminal
from actors.tokens.chat_format import ChatFormat
from actors.workers.environment_runner import EnvironmentRunner
from actors.workers.harness_runner import HarnessRunner
from actors.workers.sandbox_source import EpisodeSandboxSource, sandbox_group_of
from actors.workers.settings import WorkerSpec
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.trajectory import TRAIN_PURPOSE, RolloutRequest, Trajectory
from sandbox.pool.settings import PoolStatistics
from sandbox.providers.interface import LocalSandbox, Sandbox
from sandbox.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRunner:
    """Runs single episodes with the resources of one worker."""

    spec: WorkerSpec
    agent: Agent
    chat: ChatFormat
    generate: GenerateFunction
    reward: CompositeReward
    sandboxes: EpisodeSandboxSource
    harnesses: HarnessRunner | None
    environments: EnvironmentRunner | None
    events: EventLog
    activity: ActivityLog

    async def run(self, request: RolloutRequest, task: Task) -> Trajectory:
        """Run the episode of ``request`` to its trajectory.  Raises InfraError and OSError."""
        started_at, begun = time.time(), time.monotonic()
        spec = self.spec
        recorder = EpisodeTelemetry(
            self.events, spec.run_dir, request, task, spec.name, picture_budget_bytes=spec.episode.picture_budget_bytes
        )
        try:
            context = self._make_context(request, task, recorder)
            if self.environments is not None:
                trajectory = await self.environments.run_episode(context)
            else:
                trajectory = await self._run_in_sandbox(context)
        finally:
            recorder.close()
        trajectory = replace(
            trajectory,
            node=self.spec.node,
            worker=self.spec.name,
            started_at=started_at,
            timings_ms={**trajectory.timings_ms, "total": (time.monotonic() - begun) * 1000},
        )
        recorder.record_finished(trajectory)
        return trajectory

    def statistics(self) -> PoolStatistics:
        """Count sandboxes, or the episodes on environment services."""
        return (self.environments or self.sandboxes).statistics()

    def reward_for(self, request: RolloutRequest) -> RewardFunction:
        """Return the reward function; evaluations use no judge, because their turns are not trained."""
        return self.reward if request.purpose == TRAIN_PURPOSE else self.reward.without_judge()

    def _make_context(self, request: RolloutRequest, task: Task, recorder: EpisodeTelemetry) -> EpisodeContext:
        spec = self.spec
        return EpisodeContext(
            request=request,
            task=task,
            settings=spec.episode,
            sampling=make_sampling(
                spec.episode,
                request,
                reply_timeout_s=spec.reply_timeout_s,
                restart_timeout_s=spec.restart_timeout_s,
            ),
            reward=self.reward_for(request),
            observer=recorder,
            deadlines=spec.stage_deadlines(asyncio.get_running_loop().time()),
        )

    async def _run_in_sandbox(self, context: EpisodeContext) -> Trajectory:
        request, begun = context.request, time.monotonic()
        async with self.hold_terminal(request, context.task) as terminal:
            self.events.emit("sandbox.started", trajectory=request.trajectory_id)
            acquire_ms = (time.monotonic() - begun) * 1000
            if self.harnesses is not None:
                trajectory = await self.harnesses.run_episode(context, terminal)
            else:
                terminal.show_opening(context.observer.on_picture)
                trajectory = await self.run_agent(replace(context, task=terminal.shown_task), terminal)
        return replace(trajectory, timings_ms={**trajectory.timings_ms, "acquire": acquire_ms})

    async def run_agent(self, context: EpisodeContext, terminal: EpisodeTerminal) -> Trajectory:
        """Run an episode of the agent, which uses its sandbox through ``terminal``."""
        timed = TimedTerminal(terminal, self.activity)
        return await run_agent_episode(context, self.agent, self.chat, self.generate, timed)

    def hold_terminal(self, request: RolloutRequest, task: Task) -> AbstractAsyncContextManager[SandboxTerminal]:
        """Hold the sandbox of one episode; see :func:`actors.rollout.sandbox_terminal.hold_terminal`."""
        settings, group = self.spec.limits, sandbox_group_of(request, self.spec.provider)

        async def open_sandbox() -> Sandbox:
            with self.activity.track("starting"):
                return await self.sandboxes.open(task, settings.episode_deadline_s, group)

        def report_slow_cleanup(sandbox: Sandbox) -> None:
            container = sandbox.container if isinstance(sandbox, LocalSandbox) else ""
            self.events.emit("sandbox.slow_cleanup", container=container, after_s=settings.cleanup_timeout_s)

        return hold_terminal(
            open_sandbox(),
            task,
            self.spec.terminal_limits,
            self.agent.tools,
            vanished_before=request.vanished_sandboxes > 0,
            on_slow_cleanup=report_slow_cleanup,
        )
