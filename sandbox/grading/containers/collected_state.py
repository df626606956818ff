"""Runs a task's collect commands: they record what the agent left running in files, which the tests find."""

from __future__ import annotations

import shlex

from sandbox.errors import TaskFault
from sandbox.session.sandbox_session import SandboxSession
from sandbox.session.slots import NoFreeSlotError
from sandbox.session.user_lookup import look_up_users
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import CollectCommand

_SHOWN_CHARS = 500


async def collect_state(session: SandboxSession, task: Task) -> list[str]:
    """Run the commands beside the agent's processes, and return a sentence for each that failed, as in Harbor.

    Each has a shell of its own like the agent's, for no program that the agent may have replaced has more rights than
    its other processes.  Raises SandboxLost, SandboxDestroyed, DockerEngineError.
    """
    failures = [(each.command, await _run(session, task, each)) for each in task.collect]
    return [f"the collect command {command!r} {why}" for command, why in failures if why]


async def _run(session: SandboxSession, task: Task, given: CollectCommand) -> str:
    """Run a command, and return why it failed; empty if it did not."""
    try:
        name = given.user or task.container_user or (await session.image_config()).user
        (user,) = await look_up_users(session, [name])
        await session.set_agent_user(user)
        shell = session.open_shell()
        try:
            done = await shell.run(f"(eval {shlex.quote(given.command)})", given.timeout_s)
        finally:
            session.close_slot(shell)
            await session.become_agent()
    except (OSError, TaskFault, NoFreeSlotError) as error:
        return f"could not be run: {error}"
    if done.timed_out:
        return f"took longer than {given.timeout_s:g} s"
    return "" if done.exit_code == 0 else f"exited with {done.exit_code}: {done.output[-_SHOWN_CHARS:]!r}"
