"""Several receivers: each has the groups of its shard, with a journal of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from protocol.journal import AppendOutcome
from protocol.stream.keys import CurveClient
from protocol.stream.sender import HEARTBEAT_S, OnAcknowledged, TrajectorySender
from protocol.trajectory import GroupId, Trajectory


def shard_of(group: GroupId, shards: int) -> int:
    """Which of ``shards`` receivers has ``group``: all of its samples, so that it can close there."""
    return group % shards


class ShardedSender:
    """Sends each trajectory to the receiver that has its group.  ``endpoints`` stand in the order of the shards."""

    def __init__(
        self,
        endpoints: Sequence[str],
        run_id: str,
        sender_id: str,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        curves: Sequence[CurveClient] | None = None,
        acknowledged: OnAcknowledged | None = None,
    ) -> None:
        keys = [None] * len(endpoints) if curves is None else curves
        self.shards = [
            TrajectorySender(endpoint, run_id, sender_id, heartbeat_s=heartbeat_s, curve=key, acknowledged=acknowledged)
            for endpoint, key in zip(endpoints, keys, strict=True)
        ]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for shard in self.shards:
                await opened.enter_async_context(shard)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)

    async def send(self, trajectory: Trajectory, deadline_s: float) -> AppendOutcome:
        """As :meth:`TrajectorySender.send`."""
        return await self.shards[shard_of(trajectory.request.group, len(self.shards))].send(trajectory, deadline_s)

    async def drain(self, deadline_s: float) -> list[str]:
        """As :meth:`TrajectorySender.drain`, for all receivers; the deadline is of each."""
        return [name for shard in self.shards for name in await shard.drain(deadline_s)]
