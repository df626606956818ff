"""One serving engine on SGLang: a plain class, and an actor in a run.

It wires parts that share a :class:`~actors.engines.server_slot.ServerSlot`: the request queue, the weight updater, the
memory offload and the supervisor.  Their background tasks run in one task group from ``start`` to ``stop``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from actors.engines.memory_offload import MemoryOffload
from actors.engines.messages import (
    EngineLoad,
    EngineSnapshot,
    EngineStartError,
    EngineState,
    EngineStatistics,
    EngineStatus,
    GenerateReply,
    GenerateRequest,
    OnPartialReply,
    PartialReply,
    WeightLoadReport,
)
from actors.engines.server_slot import ServerSlot
from actors.engines.settings import EngineSpec
from actors.engines.supervisor import ServerSupervisor
from actors.engines.weights.adapter_loader import AdapterLoader
from actors.engines.weights.broadcast_loader import BroadcastSender, BroadcastWeightLoader
from actors.engines.weights.loader import FileWeightLoader, WeightLoader
from actors.engines.weights.tensor_loader import TensorWeightLoader
from actors.engines.weights.updater import WeightUpdater
from actors.runtime.stoppable_task import StoppableTask
from protocol.errors import InfraError
from protocol.weights import WeightManifest, WeightVersion, format_version


class SGLangEngine:
    """See :class:`actors.engines.interface.Engine`, which this implements.

    ``slot`` and ``weights`` are public for benches and tests, which inspect the server or load weights differently.
    """

    def __init__(self, spec: EngineSpec, sender: BroadcastSender | None = None) -> None:
        """Create the engine; if a ``sender`` is given, it broadcasts weights into the server from the learner's
        host."""
        self.slot = ServerSlot(spec)
        self.weights = WeightUpdater(self.slot, _make_loader(spec, self.slot, sender))
        self._offload = MemoryOffload(self.slot, self.weights)
        self._supervisor = ServerSupervisor(self.slot, self.weights)
        self._background: StoppableTask | None = None

    async def start(self, manifest: WeightManifest) -> EngineStatus:
        slot = self.slot
        if slot.state is not EngineState.NEW:
            raise EngineStartError(f"engine {slot.name} is {slot.state} and cannot be started")
        slot.state = EngineState.STARTING
        try:
            model = await self.weights.open_model(manifest)
            slot.queue.vocabulary_size = model.vocabulary
            slot.serving = serving = await self._supervisor.launch(manifest)
        except (InfraError, OSError) as error:
            slot.error = str(error)
            raise
        finally:
            if slot.serving is None and slot.state is EngineState.STARTING:
                slot.state = EngineState.NEW
        if slot.state is not EngineState.STARTING:
            await serving.server.stop()
            raise EngineStartError(f"engine {slot.name} was stopped while it started")
        self._supervisor.emit_started("engine.started", serving)
        slot.serve(serving)
        running = asyncio.Event()
        self._background = StoppableTask(self._run(running), f"engine-{slot.name}")
        await self._background.wait_until_started(running)
        return await self.status()

    async def stop(self) -> None:
        slot = self.slot
        if slot.state is EngineState.STOPPED:
            return
        slot.state = EngineState.STOPPED
        slot.queue.close()
        try:
            if self._background is not None:
                await self._background.stop()
        finally:
            if slot.serving is not None:
                await slot.serving.server.stop()
            slot.events.close()

    async def _run(self, running: asyncio.Event) -> None:
        slot = self.slot
        try:
            async with asyncio.TaskGroup() as group:
                slot.group = group
                running.set()
                group.create_task(self._supervisor.watch())
                group.create_task(self._supervisor.probe())
                group.create_task(slot.queue.abort_abandoned())
                group.create_task(self.weights.loader.run_cleanup())
                group.create_task(slot.activity.write_periodically())
                group.create_task(slot.events.emit_loop_lag())
        finally:
            if slot.state is not EngineState.STOPPED:
                slot.state, slot.error = EngineState.STOPPED, "its supervision ended: a defect"
                slot.queue.close()

    async def status(self) -> EngineStatus:
        slot = self.slot
        server = slot.serving.server if slot.serving else None
        return EngineStatus(
            name=slot.name,
            state=slot.state,
            version=slot.version,
            pid=server.pid if server else 0,
            port=server.port if server else 0,
            node=slot.spec.node,
            restarts=slot.queue.counters.restarts,
            start_s=self._supervisor.start_s,
            error=slot.error,
        )

    async def statistics(self) -> EngineStatistics:
        return replace(self.slot.queue.counters)

    async def drain(self, patience_s: float) -> bool:
        return await self._supervisor.drain(patience_s)

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        return await self.slot.queue.generate(request, watch)

    async def partial_replies(self, known: Mapping[str, int]) -> dict[str, PartialReply]:
        return self.slot.queue.partial_replies(known)

    async def snapshot(self, known: Mapping[str, int]) -> EngineSnapshot:
        slot = self.slot
        load = EngineLoad(
            state=slot.state,
            paused_s=slot.paused_s,
            version=slot.version,
            tokens=slot.queue.count_tokens(known),
        )
        return EngineSnapshot(await self.partial_replies(known), load)

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        await self.weights.stage(manifest, deadline_s)

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool = True
    ) -> WeightLoadReport:
        return await self.weights.load(manifest, deadline_s, wait_for_restart=wait_for_restart)

    async def restart_if_checksum(self, version: WeightVersion, checksum: str) -> None:
        serving = self.slot.serving
        if serving and (serving.confirmed.manifest.version, serving.confirmed.checksum) == (version, checksum):
            serving.mark_failed(f"its weights are in doubt: another engine holds others as {format_version(version)}")

    async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
        await self._offload.offload(lease_s, deadline_s)


def _make_loader(spec: EngineSpec, slot: ServerSlot, sender: BroadcastSender | None) -> WeightLoader:
    """Return the loader that the settings select."""
    settings = spec.settings
    if spec.lora is not None:
        return AdapterLoader(spec.lora, settings.max_adapters, spec.model_path, slot.queue)
    if sender is not None:
        return BroadcastWeightLoader(spec.name, settings.tp, sender)
    if settings.load_weights_from == "disk":
        return FileWeightLoader()
    return TensorWeightLoader(settings.device, settings.tp)
