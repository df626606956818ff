"""Prepares a sandbox for its task before the agent's first turn: its files, its setup script, its health check."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
import time
from collections.abc import Mapping
from typing import Protocol

from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, TaskFault
from sandbox.session.shell import CommandResult, SandboxShell
from sandbox.tasks.task import STEP_SETUP, Task
from sandbox.tasks.task_containers import TaskHealthcheck

_SHOWN_CHARS = 500
_KEPT_LOGS = ("/logs/artifacts",)
_STEP_SETUP_S = 300.0


class CommandRunner(Protocol):
    async def run(self, command: str, timeout_s: float) -> CommandResult: ...


class NewSandbox(CommandRunner, Protocol):
    """A sandbox that has just been started."""

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = ...) -> None: ...

    async def start_image(self, task: Task) -> None:
        """Start what the image starts, and run later commands as its user. Raises TaskFault for a user of the task that
        does not exist."""
        ...

    async def become_agent(self) -> None:
        """Run later commands as the agent's user."""
        ...


class SteppedSandbox(CommandRunner, Protocol):
    """A sandbox between two steps of its task."""

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = ..., as_root: bool = ...) -> None: ...

    workdir: str

    @property
    def shell(self) -> SandboxShell: ...

    async def clear_folder(self, path: str, *, mode: int) -> None:
        """Empty a folder, or create it."""
        ...

    async def switch_users(self, task: Task) -> None:
        """Run later commands as the agent's user, and tests as theirs.  Raises as
        :meth:`NewSandbox.start_image`."""
        ...

    def open_shell(self) -> SandboxShell: ...

    def close_slot(self, used: SandboxShell) -> None: ...


async def set_up_task(sandbox: NewSandbox, task: Task, timeout_s: float) -> None:
    """Prepare a sandbox: write the task's files and run its setup script in a subshell for at most ``timeout_s``, both
    as root, and wait until its health check succeeds as the container's user.

    Raises SandboxStartError; TaskFault when the script or the check fails, or a user does not exist.
    """
    try:
        if task.log_folders:
            await sandbox.write_files({f"{folder}/": b"" for folder in task.log_folders}, mode=0o777)
        if task.files:
            await sandbox.write_files(task.files)
        if task.setup.strip():
            _check_setup(await sandbox.run(_in_subshell(task.setup), timeout_s), timeout_s)
        await sandbox.start_image(task)
        if task.healthcheck is not None:
            await _wait_until_healthy(sandbox, task.healthcheck)
        await sandbox.become_agent()
    except (OSError, TimeoutError, SandboxDestroyed, SandboxLost) as error:
        raise SandboxStartError(f"the task's setup failed: {error}") from error


async def begin_step(sandbox: SteppedSandbox, task: Task) -> None:
    """Prepare a sandbox for a step of its task, as the step's user; nothing if the task is one step itself.

    The folders of logs are empty then, except that of artifacts, as in Harbor. The agent's shell goes on in the working
    directory.  Raises TaskFault if the step's script or check fails or a user does not exist, OSError, SandboxLost,
    SandboxDestroyed.
    """
    for step in task.steps:
        for folder in task.log_folders:
            if folder not in _KEPT_LOGS:
                await sandbox.clear_folder(folder, mode=0o777)
        for mode, executable in ((0o644, False), (0o755, True)):
            paths = {path for path in step.files if (path in step.executable) is executable}
            await sandbox.write_files(
                {posixpath.join(sandbox.workdir, path): step.files[path] for path in paths}, mode=mode, as_root=True
            )
        await sandbox.switch_users(task)
        shell = sandbox.open_shell()
        try:
            if STEP_SETUP in step.files:
                _check_setup(await shell.run(f"bash {STEP_SETUP}", _STEP_SETUP_S), _STEP_SETUP_S)
            if step.healthcheck is not None:
                await _wait_until_healthy(shell, step.healthcheck)
        finally:
            sandbox.close_slot(shell)
        if not sandbox.shell.busy:
            await sandbox.run(f"cd {shlex.quote(sandbox.workdir)}", _STEP_SETUP_S)


def _check_setup(done: CommandResult, timeout_s: float) -> None:
    if done.timed_out:
        raise SandboxStartError(f"the task's setup took longer than {timeout_s:g} s: {done.output[-_SHOWN_CHARS:]!r}")
    if done.exit_code != 0:
        raise TaskFault(f"the task's setup exited with {done.exit_code}: {done.output[-_SHOWN_CHARS:]!r}")


async def _wait_until_healthy(sandbox: CommandRunner, check: TaskHealthcheck) -> None:
    """Run the check until it succeeds.  Raises TaskFault after its maximum of failures beyond the start period."""
    start_period_ends, failures = time.monotonic() + check.start_period_s, 0
    while True:
        done = await sandbox.run(_in_subshell(check.command), check.timeout_s)
        if done.exit_code == 0:
            return
        starting = time.monotonic() < start_period_ends
        failures += not starting
        if failures >= check.retries:
            raise TaskFault(f"the task's health check fails: {_describe_failure(done, check.timeout_s)}")
        await asyncio.sleep(check.start_interval_s if starting else check.interval_s)


def _describe_failure(done: CommandResult, timeout_s: float) -> str:
    how = f"no end within {timeout_s:g} s" if done.timed_out else f"exit code {done.exit_code}"
    return f"{how}, {done.output[-_SHOWN_CHARS:]!r}" if done.output.strip() else f"{how}, no output"


def _in_subshell(script: str) -> str:
    return f"(eval {shlex.quote(script)})"
