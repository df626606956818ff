"""What can go wrong with a sandbox.  Cause decides: the daemon's fault is infrastructure, the agent's is an outcome."""

from __future__ import annotations

from enum import StrEnum

from protocol.errors import InfraError, LongshoreError


class SandboxStartError(InfraError):
    """A container could not be made ready for the agent.  Nothing of the agent's had run."""


class TaskFault(SandboxStartError):
    """The task's own doing: its build, its setup or one of its services fails, and would fail again."""


class ImageError(SandboxStartError):
    """A task's image cannot be had.  The message ends with what was said last."""


class BuildError(ImageError, TaskFault):
    """A task's image cannot be built.  The message ends with the build's last lines."""


class SandboxLost(InfraError):
    """A running container is gone, or does not answer, and nothing proves that the agent did it."""


class ShellBusy(LongshoreError):
    """The shell still runs a command: one that a tool left to itself, or somebody else's."""

    def __init__(self, message: str = "the shell still runs a command: wait for it, or end it first") -> None:
        super().__init__(message)


class SandboxVanished(SandboxLost):
    """A running container ended, or its PID 1 fell silent, while daemon, host and pool were healthy, and nothing says
    why.  Once is bad luck; a sample that it befalls twice did it."""


class DestructionCause(StrEnum):
    """How an agent ended its own container."""

    MEMORY = "memory"
    """PID 1 was killed because the container had no memory left."""
    DISK = "disk"
    """It wrote more than its disk limit."""
    TESTED = "tested"
    """What ran in it as its tests, or what they left, could not be removed from it."""


class SandboxDestroyed(LongshoreError):
    """The agent ended its own container while daemon, host and pool were healthy: a policy outcome."""

    def __init__(self, message: str, how: DestructionCause = DestructionCause.MEMORY) -> None:
        super().__init__(message)
        self.cause = how
