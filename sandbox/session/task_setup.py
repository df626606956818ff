"""Prepares a sandbox for its task before the agent's first turn: its files, its setup script, its health check."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping
from typing import Protocol

from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, TaskFault
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task, TaskHealthcheck

_SHOWN_CHARS = 500


class NewSandbox(Protocol):
    """A sandbox that has just been started."""

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = ...) -> None: ...

    async def run(self, command: str, timeout_s: float) -> CommandResult: ...

    async def become_agent(self, task: Task) -> None:
        """Run later commands as the agent's user. Raises TaskFault for a user that does not exist."""
        ...


async def set_up_task(sandbox: NewSandbox, task: Task, timeout_s: float) -> None:
    """Prepare a sandbox: write the task's files and run its setup script in a subshell for at most ``timeout_s``, both
    as root, and wait until its health check succeeds as the agent's user.

    Raises SandboxStartError; TaskFault when the script or the check fails, or a user does not exist.
    """
    try:
        if task.log_folders:
            await sandbox.write_files({f"{folder}/": b"" for folder in task.log_folders}, mode=0o777)
        if task.files:
            await sandbox.write_files(task.files)
        if task.setup.strip():
            _check_setup(await sandbox.run(_in_subshell(task.setup), timeout_s), timeout_s)
        await sandbox.become_agent(task)
        if task.healthcheck is not None:
            await _wait_until_healthy(sandbox, task.healthcheck)
    except (OSError, TimeoutError, SandboxDestroyed, SandboxLost) as error:
        raise SandboxStartError(f"the task's setup failed: {error}") from error


def _check_setup(done: CommandResult, timeout_s: float) -> None:
    if done.timed_out:
        raise SandboxStartError(f"the task's setup took longer than {timeout_s:g} s: {done.output[-_SHOWN_CHARS:]!r}")
    if done.exit_code != 0:
        raise TaskFault(f"the task's setup exited with {done.exit_code}: {done.output[-_SHOWN_CHARS:]!r}")


async def _wait_until_healthy(sandbox: NewSandbox, check: TaskHealthcheck) -> None:
    """Run the check until it succeeds.  Raises TaskFault after its maximum of failures beyond the start period."""
    start_period_ends, failures = time.monotonic() + check.start_period_s, 0
    while True:
        done = await sandbox.run(_in_subshell(check.command), check.timeout_s)
        if done.exit_code == 0:
            return
        starting = time.monotonic() < start_period_ends
        failures += not starting
        if failures >= check.retries:
            raise TaskFault(f"the task's health check fails: {done.output[-_SHOWN_CHARS:]!r}")
        await asyncio.sleep(check.start_interval_s if starting else check.interval_s)


def _in_subshell(script: str) -> str:
    return f"(eval {shlex.quote(script)})"
