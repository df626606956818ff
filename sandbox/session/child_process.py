"""Runs one child process of PID 1 with exactly the given arguments and environment."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence

from sandbox.errors import SandboxDestroyed, SandboxLost
from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.connection import ANSWER_S, InitConnection
from sandbox.session.init_connection.init_messages import ChildExit, ChildOutput
from sandbox.session.init_connection.init_requests import ROOT, ProcessUser


class _Listener:
    def __init__(self, take: Callable[[bytes], bool]) -> None:
        self._take = take
        self.number = 0
        """Id of the request that started the child."""
        self.enough = False
        self.refused = 0
        """Errno with which the child could not be started; 0 if it was."""
        self.end: ChildExit | None = None
        self.done, self.ended = asyncio.Event(), asyncio.Event()

    def on_message(self, message: ChildOutput | ChildExit) -> None:
        if isinstance(message, ChildExit):
            if message.request == self.number:
                self.end = message
                self._over()
        elif not self.enough and not self._take(message.data):
            self.enough = True
            self.done.set()

    def on_refused(self, error: int) -> None:
        self.refused = error
        self._over()

    def _over(self) -> None:
        self.done.set()
        self.ended.set()


async def collect_child_output(
    connection: InitConnection,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    limit_s: float,
    most_bytes: float = math.inf,
    user: ProcessUser = ROOT,
) -> tuple[ChildExit | None, bytes]:
    """Run a child and return how it ended, with its output.

    If it prints more than ``most_bytes``, it is killed; the output then is somewhat longer than that, and there is no
    exit status. Raises as :func:`run_child_process`.
    """
    output = bytearray()

    def take(data: bytes) -> bool:
        output.extend(data)
        return len(output) <= most_bytes

    end = await run_child_process(connection, argv, take, env=env, limit_s=limit_s, user=user)
    return end, bytes(output)


async def run_child_process(
    connection: InitConnection,
    argv: Sequence[str],
    accept_output: Callable[[bytes], bool],
    *,
    env: Mapping[str, str],
    limit_s: float,
    cwd: str = "/",
    user: ProcessUser = ROOT,
) -> ChildExit | None:
    """Run a child of ``user`` and return how it ended.

    Returns None when it exceeded ``limit_s`` or when ``accept_output``, which receives its output as it comes, returned
    False. Then, and when this is cancelled, the child is dead, but processes that it started may live. A session has
    one child at a time. Raises OSError with the container's errno when it cannot be started, SandboxLost,
    SandboxDestroyed.
    """
    child = _Listener(accept_output)
    connection.set_child_listener(child)
    try:
        with connection.request_expecting_refusal(
            lambda n: init_requests.child_frame(n, cwd, argv, env, user), child.on_refused
        ) as child.number:
            await _wait_for_child(connection, child, limit_s)
            if child.enough:
                await _killed(connection, child)
    finally:
        connection.set_child_listener(None)
    if child.refused:
        raise OSError(child.refused, os.strerror(child.refused), argv[0])
    return None if child.enough else child.end


async def _wait_for_child(connection: InitConnection, child: _Listener, limit_s: float) -> None:
    """Wait until the child has ended, ``accept_output`` has returned False, or the time limit has passed."""
    try:
        await connection.wait_for_event(child.done, limit_s)
    except TimeoutError:
        child.enough = True
    except BaseException:
        if connection.alive:  # the waiting task was cancelled
            with contextlib.suppress(SandboxLost, SandboxDestroyed):
                await asyncio.shield(_killed(connection, child))
        raise


async def _killed(connection: InitConnection, child: _Listener) -> None:
    connection.send(init_requests.interrupt_frame(connection.next_request(), wire.CHILD_SLOT))
    try:
        await connection.wait_for_event(child.ended, ANSWER_S)
    except TimeoutError as error:
        raise SandboxLost("PID 1 did not confirm that its child is dead") from error
