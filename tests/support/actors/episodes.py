"""Contexts, limits and sandboxes with which tests run episodes."""

from __future__ import annotations

from typing import cast

from actors.rewards.composite import CompositeReward, RewardFunction
from actors.rewards.outcome import binary
from actors.rollout.grading import EpisodeContext
from actors.rollout.observer import EpisodeObserver
from actors.rollout.policy import make_sampling
from actors.rollout.settings import EpisodeSettings
from actors.rollout.stages import NO_DEADLINES, StageDeadlines
from actors.rollout.terminal import TerminalLimits
from protocol.trajectory import GroupId, RolloutRequest
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.providers.interface import LocalSandbox
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from tests.support.actors.observers import FakeObserver

BINARY_REWARD = CompositeReward(binary)
"""1 for a full pass, else 0: the default of a run."""
REQUEST = RolloutRequest("run", GroupId(1), 0, 8, "t", 11)


def episode_context(
    settings: EpisodeSettings,
    task: Task,
    *,
    request: RolloutRequest = REQUEST,
    reward: RewardFunction = BINARY_REWARD,
    observer: EpisodeObserver | None = None,
    deadlines: StageDeadlines = NO_DEADLINES,
    restart_timeout_s: float = 9.0,
) -> EpisodeContext:
    """An attempt at ``request`` whose replies have 5 s."""
    return EpisodeContext(
        request=request,
        task=task,
        settings=settings,
        sampling=make_sampling(settings, request, reply_timeout_s=5.0, restart_timeout_s=restart_timeout_s),
        reward=reward,
        observer=observer or FakeObserver(),
        deadlines=deadlines,
    )


def local_sandbox(session: object, task: Task) -> LocalSandbox:
    """A sandbox of this process around ``session``, which is not closed."""
    return LocalSandbox(cast("SandboxPool", None), cast("SandboxSession", session), task)


def terminal_limits(*, command_s: float = 5.0, grade_s: float = 5.0, observation_chars: int = 1000) -> TerminalLimits:
    """Limits of a terminal whose sandbox exists already."""
    return TerminalLimits(1.0, command_s, grade_s, 1.0, observation_chars)
