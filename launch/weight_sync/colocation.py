"""Alternates a device between rollout and the learner.

Rollout has the device until a batch is ready.  Then every engine offloads its memory, the learner computes and offloads
its own, and the engines load what it has published.  The device's memory is never claimed twice: an engine offloads
before the learner is called, and reloads after :meth:`~learner.rank.LearnerRank.offload_to_host`; one that dies
meanwhile is restarted in the next rollout phase.  A learner that dies or hangs keeps the device while it is restarted;
if the driver dies, the engines reload when their leases end.

With separate devices (``colocated`` false) every method returns at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from actors.engines.interface import Engine
from actors.runtime.remote import Remote
from launch.weight_sync.manager import WeightSyncManager
from protocol.errors import InfraError

RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationManager:
    """Moves a shared device between rollout and the learner."""

    colocated: bool
    weight_sync: WeightSyncManager
    lease_s: float
    """Seconds that an engine stays offloaded without a renewal of its lease."""
    timeout_s: float
    """Longest wait, in seconds, for an engine to offload its memory or to serve again."""

    @property
    def learner_active(self) -> bool:
        """Whether the learner has the device."""
        return self.weight_sync.suspended

    async def switch_to_learner(self) -> None:
        """Move the device to the learner, or renew its leases.  Raises InfraError if an engine keeps its memory."""
        if not self.colocated:
            return
        self.weight_sync.suspend()
        try:
            async with asyncio.timeout(self.timeout_s), asyncio.TaskGroup() as group:
                for engine in self.weight_sync.engines:
                    group.create_task(self._offload_engine(engine))
        except TimeoutError as error:
            raise InfraError(
                f"an engine did not offload its memory for the learner within {self.timeout_s:g} s: its log "
                "(starts/N/logs) says why; --resume tries again"
            ) from error

    async def switch_to_rollout(self) -> None:
        """Move the device back to the engines once the learner is offloaded; return when all serve the newest weights.
        Raises InfraError."""
        if not self.colocated:
            return
        await self.weight_sync.resume()
        await self.weight_sync.wait_newest_served(self.timeout_s)

    async def _offload_engine(self, engine: Remote[Engine]) -> None:
        reported = ""
        while True:
            try:
                async with asyncio.timeout(self.weight_sync.update_timeout_s + RETRY_S):
                    return await engine.call(Engine.offload_memory, self.lease_s, self.weight_sync.update_timeout_s)
            except (InfraError, TimeoutError) as error:
                if reported != str(error):
                    reported = str(error)
                    self.weight_sync.events.emit("engine.offload_failed", engine=engine.name, why=reported)
            await asyncio.sleep(RETRY_S)
