"""Gives a server's memory to a colocated learner and takes it back.

The slot's lock is held for the whole lease: dispatch closed → requests cut, which resume afterwards → memory released
→ … → taken back → weights loaded and confirmed → continue → dispatch open.  A lease ends with a load of weights, or by
itself on the last confirmed ones.  A server that dies meanwhile is replaced after the lease, not in the learner's
memory.
"""

from __future__ import annotations

import asyncio
import time

from actors.engines.memory_lease import MemoryLease
from actors.engines.messages import EngineState, ServerLost, WeightLoadError, WeightLoadReport
from actors.engines.server.active_server import ActiveServer
from actors.engines.server_slot import ServerSlot
from actors.engines.weights.updater import WeightUpdater
from protocol.weights import WeightManifest, format_version


class MemoryOffload:
    """The memory of one engine's server."""

    def __init__(self, slot: ServerSlot, weights: WeightUpdater) -> None:
        self._slot, self._weights = slot, weights

    async def offload(self, lease_s: float, deadline_s: float) -> None:
        """See :meth:`actors.engines.interface.Engine.offload_memory`.  An engine that was not started has no memory."""
        slot = self._slot
        if slot.state is EngineState.NEW:
            return
        if slot.group is None or slot.state is EngineState.STOPPED:
            raise WeightLoadError(f"engine {slot.name} is {slot.state} and cannot offload its memory")
        lease = slot.memory_lease
        if lease is None or lease.is_ending:  # an ending one frees the lock once the server is back
            lease = slot.memory_lease = MemoryLease()
            lease.task = slot.group.create_task(self._hold(lease))
        lease.renew(lease_s)
        try:
            async with asyncio.timeout(deadline_s):
                await lease.released.wait()
        except TimeoutError:
            raise WeightLoadError(
                f"engine {slot.name} has not released its memory within {deadline_s:g} s; it is {slot.state}"
            ) from None

    async def _hold(self, lease: MemoryLease) -> WeightLoadReport | WeightLoadError | None:
        """Hold the lock for the whole lease; return the outcome of the load that ended it, or None if the server has
        failed: the supervisor is next to get the lock, so the caller tries again."""
        async with self._slot.lock:
            with self._slot.activity.track("offloaded"):
                return await self._hold_locked(lease)

    async def _hold_locked(self, lease: MemoryLease) -> WeightLoadReport | WeightLoadError | None:
        slot, begun = self._slot, time.monotonic()
        serving = slot.serving
        assert serving is not None  # noqa: S101  # it was started
        slot.queue.dispatch_open.clear()
        slot.state = EngineState.OFFLOADED
        slot.events.emit("engine.offloaded", engine=slot.name)
        await self._weights.release_memory(serving)
        lease.released.set()
        manifest, why = await lease.wait_until_ended(), ""
        if manifest is None:
            manifest, why = serving.confirmed.manifest, "the learner exceeded its lease"
        before = slot.version
        outcome = await self._resume(serving, manifest, begun)
        if outcome is None:
            why = serving.failure.result()
        elif isinstance(outcome, WeightLoadError):
            why = str(outcome)
        slot.events.emit(
            "engine.onloaded",
            engine=slot.name,
            version=serving.confirmed.manifest.version,
            new=serving.confirmed.manifest.version != before,
            offloaded_s=round(time.monotonic() - begun, 3),
            load_ms=round(outcome.load_ms, 2) if isinstance(outcome, WeightLoadReport) else 0.0,
            why=why,
        )
        if slot.memory_lease is lease:
            slot.memory_lease = None
        return outcome

    async def _resume(
        self, serving: ActiveServer, manifest: WeightManifest, begun: float
    ) -> WeightLoadReport | WeightLoadError | None:
        if serving.failure.done():
            return None
        slot = self._slot
        try:
            load_ms = await self._weights.resume_memory(serving, manifest)
        except (ServerLost, WeightLoadError, TimeoutError) as error:
            label, why = format_version(manifest.version), str(error) or "no answer in time"
            return WeightLoadError(f"version {label} was not loaded after the learner's lease: {why}")
        finally:
            if slot.state is EngineState.OFFLOADED:
                slot.serve(serving)
        slot.queue.counters.loads += 1
        return WeightLoadReport(
            version=manifest.version,
            load_ms=load_ms,
            offloaded_s=time.monotonic() - begun,
            checksum=serving.confirmed.checksum,
        )
