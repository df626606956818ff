"""Prepares a sandbox for its task before the agent's first turn: the task's files, then its setup script."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping

from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, TaskFault
from sandbox.session.shell import CommandResult

_SHOWN_CHARS = 500


async def set_up_task(
    write_files: Callable[[Mapping[str, bytes]], Awaitable[None]],
    run: Callable[[str, float], Awaitable[CommandResult]],
    files: Mapping[str, bytes],
    script: str,
    timeout_s: float,
) -> None:
    """Write ``files``, then run ``script`` in a subshell.

    Raises SandboxStartError; TaskFault when the script exits with an error.
    """
    try:
        if files:
            await write_files(files)
        if not script.strip():
            return
        done = await run(f"(eval {shlex.quote(script)})", timeout_s)
    except (OSError, TimeoutError, SandboxDestroyed, SandboxLost) as error:
        raise SandboxStartError(f"the task's setup failed: {error}") from error
    if done.timed_out:
        raise SandboxStartError(f"the task's setup took longer than {timeout_s:g} s: {done.output[-_SHOWN_CHARS:]!r}")
    if done.exit_code != 0:
        raise TaskFault(f"the task's setup exited with {done.exit_code}: {done.output[-_SHOWN_CHARS:]!r}")
