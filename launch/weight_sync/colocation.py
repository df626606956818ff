"""Whose turn it is on a device that learner and engines share.

Rollout has it until a batch is there.  Then every engine gives its memory away, the learner computes, gives its own
away, and what it has published is loaded into the engines.  Nobody takes memory that another has: an engine gives it
away before the learner is called, and gets it back after the learner's :meth:`~learner.rank.LearnerRank.sleep`; one
that dies meanwhile is started again in rollout's turn.  A learner that dies or hangs in its turn keeps it while it is
started again; if the driver forgets it, the engines go on by themselves at the end of their leases.

With a device for each (``shared`` false) it is always everybody's turn, and nobody waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from launch.weight_sync.manager import WeightSyncManager
from protocol.errors import InfraError

_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationManager:
    colocated: bool
    weight_sync: WeightSyncManager
    lease_s: float
    """Longest that an engine stands aside without being told again that it has to."""
    timeout_s: float
    """Longest wait for an engine to stand aside, or to come back."""

    @property
    def learner_active(self) -> bool:
        """It is the learner's turn."""
        return self.weight_sync.suspended

    async def switch_to_learner(self) -> None:
        """Give the learner its turn, or more time for it.  Raises InfraError where an engine keeps its memory."""
        if not self.colocated:
            return
        self.weight_sync.suspend()
        try:
            async with asyncio.timeout(self.timeout_s), asyncio.TaskGroup() as group:
                for engine in self.weight_sync.engines:
                    group.create_task(self._offload_engine(engine))
        except TimeoutError as error:
            raise InfraError(
                f"an engine did not give its memory to the learner within {self.timeout_s:g} s: its log says why; "
                "--resume tries again"
            ) from error

    async def switch_to_rollout(self) -> None:
        """End the learner's turn, which sleeps: return when every engine serves what was offered last.  Raises
        InfraError."""
        await self.weight_sync.resume()
        await self.weight_sync.wait_newest_served(self.timeout_s)

    async def _offload_engine(self, engine: Remote[Engine]) -> None:
        said = ""
        while True:
            try:
                async with asyncio.timeout(self.weight_sync.update_timeout_s + _RETRY_S):
                    return await engine.call(Engine.offload_memory, self.lease_s, self.weight_sync.update_timeout_s)
            except (InfraError, TimeoutError) as error:
                if said != str(error):
                    said = str(error)
                    self.weight_sync.events.emit("engine.offload_failed", engine=engine.name, why=said)
            await asyncio.sleep(_RETRY_S)
