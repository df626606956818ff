"""Who comes and who goes while a run goes on, and whether the cluster is there at all.

Ray answers from the head's memory.  Where that is gone, a question to it hangs, or ends the process that asked: so it
is asked in a thread that nothing waits for, and not for longer than a patience.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from launch.hosts.cluster_nodes import RayNode, list_alive_nodes
from launch.hosts.membership import MembershipChange, NodeMembership
from protocol.errors import InfraError

T = TypeVar("T")

_LOOK_S = 1.0
_PATIENCE_S = 45.0
"""Below Ray's own, which ends the process without a word."""


class ClusterLostError(InfraError):
    """The cluster that the driver is part of has ended: none of its actors is left."""


async def watch_membership(
    roster: NodeMembership, own_processes: Sequence[int] = (), ask: Callable[[], list[RayNode]] = list_alive_nodes
) -> AsyncGenerator[MembershipChange]:
    """Each change, as it is seen.  ``own_processes``: Ray's, without which there is no cluster, where they are known.

    Raises :class:`ClusterLost`.
    """
    clock, mine = asyncio.get_running_loop().time, roster.nodes[0].ray_id
    has_ended, unanswered = _process_watch(own_processes), None
    while True:
        await asyncio.sleep(_LOOK_S)
        if has_ended():
            raise ClusterLostError("Ray was killed on the driver's machine")
        alive: list[RayNode] | None = None
        unanswered = unanswered or clock()  # since the first question, not the last answer: we may have been busy
        try:
            async with asyncio.timeout_at(unanswered + _PATIENCE_S):
                with suppress(Exception):  # whatever Ray raises, it has not answered
                    alive = await _in_thread(ask)
        except TimeoutError as error:
            raise ClusterLostError(f"Ray's head has not answered for {_PATIENCE_S:g} s") from error
        if alive is None:
            continue
        unanswered = None
        if all(node.ray_id != mine for node in alive):
            raise ClusterLostError("Ray on the driver's node has ended")
        change = roster.update(alive)
        if any(change):
            yield change


def _process_watch(processes: Sequence[int]) -> Callable[[], bool]:
    """Tells whether one of these has ended."""
    try:
        handles = [os.pidfd_open(process) for process in processes]
    except ProcessLookupError:
        return lambda: True
    return lambda: bool(select.select(handles, [], [], 0)[0])


async def _in_thread(ask: Callable[[], T]) -> T:
    """What ``ask`` gives, in a thread that keeps nobody from ending.  Raises what it raises."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def give(set_it: Callable[[], None]) -> None:
        if not answer.done():
            set_it()

    def run() -> None:
        try:
            value = ask()
        except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
            failure = error
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(give, lambda: answer.set_exception(failure))
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(give, lambda: answer.set_result(value))

    threading.Thread(target=run, name="who-is-alive", daemon=True).start()
    return await answer
