"""One child of PID 1 with exactly the arguments and the environment that it is given, run to its end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence

from sandbox.errors import SandboxDestroyed, SandboxLost
from sandbox.session import wire
from sandbox.session.connection import ANSWER_S, InitConnection


class _Listener:
    def __init__(self, take: Callable[[bytes], bool]) -> None:
        self._take = take
        self.number = 0
        """Of the request that started it."""
        self.enough = False
        self.refused = 0
        """Why there is none: an errno."""
        self.end: wire.ChildExit | None = None
        self.told, self.ended = asyncio.Event(), asyncio.Event()

    def on_message(self, message: wire.ChildOutput | wire.ChildExit) -> None:
        if isinstance(message, wire.ChildExit):
            if message.request == self.number:
                self.end = message
                self._over()
        elif not self.enough and not self._take(message.data):
            self.enough = True
            self.told.set()

    def on_refused(self, error: int) -> None:
        self.refused = error
        self._over()

    def _over(self) -> None:
        self.told.set()
        self.ended.set()


async def collect_child_output(
    connection: InitConnection,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    limit_s: float,
    most_bytes: float = math.inf,
) -> tuple[wire.ChildExit | None, bytes]:
    """How a child ended, as :func:`run_child`, which also says what is raised; and what it printed.  Of more than
    ``most_bytes`` there is some more than that, and no end."""
    said = bytearray()

    def take(data: bytes) -> bool:
        said.extend(data)
        return len(said) <= most_bytes

    end = await run_child_process(connection, argv, take, env=env, limit_s=limit_s)
    return end, bytes(said)


async def run_child_process(
    connection: InitConnection,
    argv: Sequence[str],
    accept_output: Callable[[bytes], bool],
    *,
    env: Mapping[str, str],
    limit_s: float,
    cwd: str = "/",
) -> wire.ChildExit | None:
    """How it ended.  None when it ran out of ``limit_s``, or when ``take``, which is given its output as that comes,
    wanted no more: then, and when this is cancelled, the child is dead, and what it started may live.

    A session has one at a time.  Raises OSError with the container's errno when none can be started, SandboxLost,
    SandboxDestroyed.
    """
    child = _Listener(accept_output)
    connection.set_child_listener(child)
    try:
        with connection.request_expecting_refusal(
            lambda n: wire.child_frame(n, cwd, argv, env), child.on_refused
        ) as child.number:
            await _wait_until_told(connection, child, limit_s)
            if child.enough:
                await _killed(connection, child)
    finally:
        connection.set_child_listener(None)
    if child.refused:
        raise OSError(child.refused, os.strerror(child.refused), argv[0])
    return None if child.enough else child.end


async def _wait_until_told(connection: InitConnection, child: _Listener, limit_s: float) -> None:
    """Until it has ended, enough of its output has come, or its time is over."""
    try:
        await connection.wait_for_event(child.told, limit_s)
    except TimeoutError:
        child.enough = True
    except BaseException:
        if connection.alive:  # whoever waited is cancelled
            with contextlib.suppress(SandboxLost, SandboxDestroyed):
                await asyncio.shield(_killed(connection, child))
        raise


async def _killed(connection: InitConnection, child: _Listener) -> None:
    connection.send(wire.interrupt_frame(connection.next_request(), wire.CHILD_SLOT))
    try:
        await connection.wait_for_event(child.ended, ANSWER_S)
    except TimeoutError as error:
        raise SandboxLost("PID 1 did not say that its child is dead") from error
