"""Kills processes in the agent's container: all, or only those of tests that ran beside the agent's.

All: PID 1 kills and reaps all others, and the daemon must then see only PID 1.

If PID 1 cannot (a process of another user in a container without CAP_KILL), the remaining processes are found by the
container's cgroup on this host. Only a cgroup whose own path names the container is ever read, so with a remote daemon
nothing is killed. A container that still holds another process is not graded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from sandbox.docker.cgroups import cgroup_procs
from sandbox.errors import SandboxLost
from sandbox.grading.containers.container_calls import container_pids, main_pid
from sandbox.session.init_connection import init_requests
from sandbox.session.init_connection.connection import ANSWER_S
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task_grading import GradingLevel

_LOOKS, _LOOK_S = 40, 0.05
"""Number of checks and seconds between them: a killed process may still be visible for a moment."""


async def kill_agent_processes(session: SandboxSession) -> None:
    """Kill all processes in the container except PID 1. The session's shell does not survive this.

    Raises SandboxLost if a process survives or PID 1 does not answer, SandboxDestroyed if the container has ended.
    """
    if await _kill(session, init_requests.kill_all_frame):
        await kill_processes_by_cgroup(session)
        if still := await _kill(session, init_requests.kill_all_frame):
            raise SandboxLost(f"processes survived SIGKILL before grading: {still}")
    for _ in range(_LOOKS):
        if len(await container_pids(session.engine, session.container)) == 1:
            return
        await asyncio.sleep(_LOOK_S)
    raise SandboxLost("processes survived SIGKILL before grading, but PID 1 does not see them")


async def kill_tests(session: SandboxSession, level: GradingLevel) -> None:
    """Kill what the tests started: at level ``live`` nothing else, unless it does not die; otherwise everything.

    Raises as :func:`kill_agent_processes`.
    """
    if level is not GradingLevel.LIVE or await _kill(session, init_requests.kill_tests_frame):
        await kill_agent_processes(session)


async def _kill(session: SandboxSession, frame: Callable[[int], bytes]) -> str:
    """Let PID 1 kill processes. Returns the reason if some survive."""
    try:
        ack = await session.wait_acknowledged(session.request(frame), ANSWER_S)
    except TimeoutError as error:
        raise await session.timeout_reason("before grading") from error
    return os.strerror(ack.error) if ack.error else ""


async def kill_processes_by_cgroup(session: SandboxSession) -> None:
    """Kill, from this host, all processes in the container's cgroup except PID 1.

    Raises SandboxLost, DockerEngineError.
    """
    first = await main_pid(session.engine, session.container)
    members = cgroup_procs(first, session.container) if first else None
    if members is None:
        raise SandboxLost("processes survived SIGKILL before grading, and the Docker daemon runs on another host")
    for _ in range(_LOOKS):
        for pid in map(int, (await asyncio.to_thread(members.read_text)).split()):
            if pid not in (first, 0):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if await container_pids(session.engine, session.container) == (first,):
            return
        await asyncio.sleep(_LOOK_S)
