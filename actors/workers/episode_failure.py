"""Classifies the exception that ended an episode, in a run or in a standalone evaluation."""

from __future__ import annotations

from typing import NamedTuple

from actors.engines.messages import EngineUnavailable
from actors.rollout.stages import StageOverrun
from protocol.errors import iterate_leaf_errors
from protocol.trajectory import InfraFailure
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost, SandboxStartError, SandboxVanished, TaskFault


class EpisodeFailure(NamedTuple):
    """The infrastructure failure that ended an episode without a verdict."""

    failure: InfraFailure
    detail: str
    """One line with the cause."""


_FAILURES: tuple[tuple[type[Exception], InfraFailure], ...] = (
    (TaskFault, InfraFailure.TASK_FAULT),
    (SandboxStartError, InfraFailure.SANDBOX_START),
    (SandboxVanished, InfraFailure.SANDBOX_VANISHED),
    (SandboxLost, InfraFailure.SANDBOX_LOST),
    (DockerEngineError, InfraFailure.SANDBOX_LOST),
    (StageOverrun, InfraFailure.DEADLINE),
    (EngineUnavailable, InfraFailure.ENGINE),
)
"""Failure of each class of error; a subclass comes before its base."""


def classify_failure(error: Exception, episode_deadline_s: float) -> EpisodeFailure:
    """Return the failure of an episode that ended in ``error``."""
    first = next(iterate_leaf_errors(error))
    for kind, failure in _FAILURES:
        if isinstance(first, kind):
            return EpisodeFailure(failure, str(first))
    if isinstance(first, TimeoutError):
        return EpisodeFailure(InfraFailure.DEADLINE, f"took longer than {episode_deadline_s:g} s")
    return EpisodeFailure(InfraFailure.UNEXPECTED, f"{type(first).__name__}: {first}")
