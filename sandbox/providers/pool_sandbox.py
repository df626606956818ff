"""Sandboxes that also run an agent's own program, which reaches a socket of this process; and those of pools, on this
machine or behind a pool server, which play the steps of a task as well.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from sandbox.grading.grade_result import GradeResult
from sandbox.providers.interface import Sandbox
from sandbox.session.shell import CommandResult


@runtime_checkable
class AgentSandbox(Sandbox, Protocol):
    """A session that runs an agent's own program."""

    def listen(self, port: int) -> AbstractAsyncContextManager[socket.socket]:
        """Open a listening socket, whose connections are those that :meth:`run_agent`'s program makes to
        127.0.0.1:``port`` in the sandbox.  Nothing else can be reached through it, and nothing else reaches it.

        Raises UserError where that is impossible, InfraError.
        """
        ...

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run an agent's program in the shell until it ends, or ``remaining_s()`` is not above 0.

        ``on_output`` receives its output, at the latest when it has ended.  Raises ShellBusy, ValueError for a command
        that is too long, and UserError where its connections cannot be carried.
        """
        ...

    async def grade(self, timeout_s: float | None = None, commands: Sequence[str] = ()) -> GradeResult:
        """Grade the step that was begun, or the task; ``commands`` are those of the agent that did not go through this
        sandbox's methods, and are read for signs of cheating."""
        ...


@runtime_checkable
class PoolSandbox(AgentSandbox, Protocol):
    """A session in a pool."""

    async def begin_step(self, number: int) -> None:
        """Prepare the sandbox for a step of its task, which :meth:`grade` grades from then on; steps count from 0.

        Raises TaskFault if the step is at fault, OSError.
        """
        ...
