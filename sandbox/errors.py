"""The errors of sandboxes. The cause decides the class: failures of daemon or host are infrastructure, actions of the
agent are outcomes of its policy."""

from __future__ import annotations

from enum import StrEnum

from protocol.errors import InfraError, LongshoreError


class SandboxStartError(InfraError):
    """A container could not be prepared for the agent, and nothing of the agent had run in it."""


class TaskFault(SandboxStartError):
    """The task itself is at fault: its build, its setup script or one of its services fails, and would fail again."""


class ImageError(SandboxStartError):
    """A task's image is not available. The message ends with the last lines of the pull or the daemon."""


class BuildError(ImageError, TaskFault):
    """A task's image cannot be built. The message ends with the last lines of the build."""


class SandboxLost(InfraError):
    """A running container no longer exists or does not answer, and nothing proves that the agent caused it."""


class ShellBusy(LongshoreError):
    """The shell still runs a command, which a tool or another caller started."""

    def __init__(self, message: str = "the shell still runs a command: wait for it, or end it first") -> None:
        super().__init__(message)


class SandboxVanished(SandboxLost):
    """A running container ended, or its PID 1 stopped answering, for no known reason while daemon, host and pool were
    healthy.

    Once is bad luck; if the sandboxes of a sample vanish twice, the sample counts as the cause.
    """


class DestructionCause(StrEnum):
    """Resource by which an agent ended its own container."""

    MEMORY = "memory"
    """PID 1 was killed because the container ran out of memory."""
    DISK = "disk"
    """The agent wrote more than its disk limit."""
    TESTED = "tested"
    """Tests, or what they left behind, could not be removed from the agent's container."""


class SandboxDestroyed(LongshoreError):
    """The agent ended its own container while daemon, host and pool were healthy: an outcome of its policy."""

    def __init__(self, message: str, how: DestructionCause = DestructionCause.MEMORY) -> None:
        super().__init__(message)
        self.cause = how
