"""Watches a cluster: nodes that join or are lost, and the loss of the whole cluster.

Ray answers from the head's memory.  If the head is gone, a query hangs or ends the process, so queries run in a thread
that nothing waits for, with a timeout.
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

CHECK_S = 1.0
HEAD_TIMEOUT_S = 45.0
"""Below Ray's own timeout, after which Ray ends the process without a message."""


class ClusterLostError(InfraError):
    """The cluster that the driver is part of has ended: none of its actors is left."""


async def watch_membership(
    membership: NodeMembership,
    own_processes: Sequence[int] = (),
    list_nodes: Callable[[], list[RayNode]] = list_alive_nodes,
) -> AsyncGenerator[MembershipChange]:
    """Yield each change of the nodes.  ``own_processes`` are Ray processes without which there is no cluster, if they
    are known.

    Raises ClusterLostError."""
    clock, mine = asyncio.get_running_loop().time, membership.nodes[0].ray_id
    has_ended, unanswered = _process_watch(own_processes), None
    while True:
        await asyncio.sleep(CHECK_S)
        if has_ended():
            raise ClusterLostError("Ray was killed on the driver's machine")
        alive: list[RayNode] | None = None
        unanswered = (
            unanswered or clock()
        )  # since the first query, not the last answer: this process may have been busy
        try:
            async with asyncio.timeout_at(unanswered + HEAD_TIMEOUT_S):
                with suppress(Exception):  # whatever Ray raises, it did not answer
                    alive = await _call_in_thread(list_nodes)
        except TimeoutError as error:
            raise ClusterLostError(f"Ray's head has not answered for {HEAD_TIMEOUT_S:g} s") from error
        if alive is None:
            continue
        unanswered = None
        if all(node.ray_id != mine for node in alive):
            raise ClusterLostError("Ray on the driver's node has ended")
        change = membership.update(alive)
        if any(change):
            yield change


def _process_watch(processes: Sequence[int]) -> Callable[[], bool]:
    """Return a function that tells whether one of these processes has ended."""
    try:
        handles = [os.pidfd_open(process) for process in processes]
    except ProcessLookupError:
        return lambda: True
    return lambda: bool(select.select(handles, [], [], 0)[0])


async def _call_in_thread(function: Callable[[], T]) -> T:
    """Return the result of ``function``, called in a thread that does not keep the process from ending.  Raises what it
    raises."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def give(set_it: Callable[[], None]) -> None:
        if not answer.done():
            set_it()

    def run() -> None:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001  it is raised where the result is awaited
            failure = error
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(give, lambda: answer.set_exception(failure))
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(give, lambda: answer.set_result(value))

    threading.Thread(target=run, name="list-ray-nodes", daemon=True).start()
    return await answer
