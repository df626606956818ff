"""One child of PID 1 with exactly the arguments and the environment that it is given, run to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox import wire
from sandbox.errors import SandboxLost
from sandbox.link import ANSWER_S

if TYPE_CHECKING:
    from sandbox.session import SandboxSession


class _Listener:
    def __init__(self, take: Callable[[bytes], bool]) -> None:
        self._take = take
        self.enough = False
        self.end: wire.GradeExit | None = None
        self.told, self.ended = asyncio.Event(), asyncio.Event()

    def on_message(self, message: wire.GradeOutput | wire.GradeExit) -> None:
        if isinstance(message, wire.GradeExit):
            self.end = message
            self.told.set()
            self.ended.set()
        elif not self.enough and not self._take(message.data):
            self.enough = True
            self.told.set()


async def run_child(
    session: SandboxSession,
    argv: Sequence[str],
    take: Callable[[bytes], bool],
    *,
    env: Mapping[str, str],
    limit_s: float,
    cwd: str = "/",
) -> wire.GradeExit | None:
    """How it ended.  None when it ran out of ``limit_s``, or when ``take``, which is given its output as that comes,
    wanted no more: then the child is dead, and what it started may live.

    A session has one at a time.  Raises SandboxLost, SandboxDestroyed.
    """
    child = _Listener(take)
    session.grading(child)
    try:
        session.send(wire.grade(session.next_request(), cwd, argv, env))
        try:
            await session.arrived(child.told, limit_s)
        except TimeoutError:
            child.enough = True
        if not child.enough:
            return child.end
        session.send(wire.interrupt(session.next_request(), wire.GRADE_SLOT))
        await session.arrived(child.ended, ANSWER_S)
    except TimeoutError as error:
        raise SandboxLost("PID 1 did not say that its child is dead") from error
    finally:
        session.grading(None)
    return None
