"""Keeps one engine's server alive: starts it, probes it, and replaces it when it fails.

The supervisor waits for the server's failure (its processes ended, a probe hung, a swap went wrong), starts the next
server with back-off on the newest weights that are there, and opens dispatch again.  It continues until the engine is
stopped.  While the server is paused for weights or offloaded, its health is not judged.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from actors.engines.messages import (
    EngineStartError,
    EngineState,
    EngineUnavailable,
    InvalidWeights,
    RequestRefused,
    ServerLost,
    WeightLoadError,
)
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server.process import SGLangServer
from actors.engines.server_slot import ServerSlot
from actors.engines.weights import weight_files
from actors.engines.weights.updater import WeightUpdater
from protocol.weights import WeightManifest

BACK_OFF_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
HEALTHY_S = 60.0
"""A server that served this long is replaced without back-off."""
STOP_S = 60.0
"""Seconds beyond the grace that a server's processes may take to end before it is reported."""
_FAILED_PROBES = 3
_DRAINED = "it was drained on request"


class ServerSupervisor:
    """The server of one engine.  ``watch`` and ``probe`` are its two tasks."""

    def __init__(self, slot: ServerSlot, weights: WeightUpdater) -> None:
        self._slot, self._weights = slot, weights
        self.start_s = 0.0
        """Duration of the last start, in seconds."""

    async def launch(self, manifest: WeightManifest) -> ActiveServer:
        """Start a server that serves ``manifest``.  Raises :class:`EngineStartError`; nothing is left running then."""
        slot, loader, begun = self._slot, self._weights.loader, time.monotonic()
        base = loader.start_weights(manifest)
        server = await SGLangServer.launch(slot.spec, base)
        failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        timeout_s = slot.settings.start_timeout_s
        try:
            async with AsyncExitStack() as undo, asyncio.timeout(timeout_s):
                undo.push_async_callback(server.stop)
                confirmed = ConfirmedWeights(base, await server.client.read_checksum())
                queue = slot.queue
                serving = ActiveServer(server, confirmed, queue.dispatch_open, failure, queue.note_weight_change)
                await loader.attach_server(serving, manifest)
                undo.pop_all()
        except (TimeoutError, ServerLost, WeightLoadError) as error:
            why = str(error) or f"not within {timeout_s:g} s"
            raise EngineStartError(f"the weights of the new server could not be confirmed: {why}") from error
        self.start_s = time.monotonic() - begun
        server.ended.add_done_callback(lambda ended: serving.mark_failed(ended.result()))
        return serving

    async def watch(self) -> None:
        """Until cancelled, replace each server that fails."""
        slot, failures = self._slot, 0
        while (serving := slot.serving) is not None:
            begun = time.monotonic()
            why = await asyncio.shield(serving.failure)
            died, pid = why != _DRAINED, serving.server.pid
            failures = failures + 1 if died and time.monotonic() - begun < HEALTHY_S else 0
            slot.state, slot.error = EngineState.RESTARTING, why
            kind = "engine.died" if died else "engine.drained"
            slot.events.emit(kind, engine=slot.name, why=why, pid=pid)
            async with slot.lock:
                with slot.activity.track("down"):
                    await self.end_server(serving.server)
                    slot.serving = await self.relaunch(serving.confirmed, failures)
                    await self._weights.load_staged(slot.serving)
                slot.queue.counters.restarts += 1
                self.emit_started("engine.restarted", slot.serving)
                slot.serve(slot.serving)

    async def probe(self) -> None:
        """Until cancelled, probe a silent server by sampling a token.  A server that hangs in a probe, or fails three,
        has failed."""
        slot, number, failures, probed = self._slot, 0, 0, self._slot.serving
        every_s, stall_s = slot.spec.probe_every_s, slot.settings.stall_timeout_s
        while True:
            await asyncio.sleep(every_s)
            serving, probed_at = slot.serving, time.monotonic()
            recent = probed_at - slot.queue.last_token_at < every_s
            if recent or serving is not probed:
                failures, probed = 0, serving
            if serving is None or slot.state is not EngineState.SERVING or recent:
                continue
            number += 1
            try:
                async with asyncio.timeout(stall_s):
                    await serving.server.probe(f"{slot.name}-probe-{number}")
            except TimeoutError:
                silent = slot.queue.last_token_at < probed_at
                if silent and not slot.is_paused and slot.memory_lease is None:
                    serving.mark_failed(f"it was silent for {stall_s:g} s")
            except (ServerLost, RequestRefused) as error:
                failures += slot.memory_lease is None  # a lease begins by aborting every request
                if failures >= _FAILED_PROBES:
                    serving.mark_failed(f"{failures} probes failed: {error}")
            else:
                failures = 0

    async def drain(self, patience_s: float) -> bool:
        """See :meth:`actors.engines.interface.Engine.drain`."""
        slot = self._slot
        serving, group = slot.serving, slot.group
        if serving is None or group is None or slot.state is not EngineState.SERVING:
            raise EngineUnavailable(f"engine {slot.name} is {slot.state} and cannot be drained: try again")
        ended = await asyncio.shield(group.create_task(self._drain(serving, patience_s)))
        if ended is None:
            raise EngineUnavailable(f"engine {slot.name} lost its server before it was drained")
        return ended

    async def _drain(self, serving: ActiveServer, patience_s: float) -> bool | None:
        """Drain the server; return None if it has failed meanwhile."""
        slot = self._slot
        async with slot.lock:
            if serving is not slot.serving or serving.failure.done():
                return None
            slot.queue.dispatch_open.clear()
            slot.state = EngineState.DRAINING
            slot.events.emit("engine.draining", engine=slot.name)
            ended = await slot.queue.wait_until_idle(patience_s)
            serving.mark_failed(_DRAINED)
        await slot.queue.dispatch_open.wait()
        return ended

    async def end_server(self, server: SGLangServer) -> None:
        """Stop a server, and report it if its processes do not end, as when a device's driver holds them."""
        timeout_s = self._slot.spec.stop_grace_s + STOP_S
        try:
            async with asyncio.timeout(timeout_s):
                await server.stop()
        except TimeoutError:
            self._report_failed_start(f"process {server.pid} and its children have not ended within {timeout_s:g} s")
            await server.stop()

    async def relaunch(self, confirmed: ConfirmedWeights, failures: int) -> ActiveServer:
        """Start servers until one comes up: on the staged version and, every other time, on the last confirmed one,
        whose files may be gone.  ``failures`` in a row decide the back-off.

        If a server that starts on the confirmed version holds other weights than the one before, and the files are as
        published, then the one before held wrong weights.
        """
        newest = False
        while True:
            await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures, newest = failures + 1, not newest
            staged = self._weights.staged_manifest
            manifest = staged if newest and staged is not None else confirmed.manifest
            try:
                serving = await self.launch(manifest)
            except (EngineStartError, OSError) as error:
                self._report_failed_start(str(error))
                continue
            if manifest != confirmed.manifest or serving.confirmed.checksum == confirmed.checksum:
                return serving
            base = self._weights.loader.start_weights(manifest)
            try:
                await asyncio.to_thread(weight_files.check_published, base)
            except InvalidWeights as error:
                await serving.server.stop()
                self._report_failed_start(str(error))
            else:
                self._slot.events.emit("engine.weights_repaired", engine=self._slot.name, version=manifest.version)
                return serving

    def emit_started(self, kind: str, serving: ActiveServer) -> None:
        """Emit the event of a server that has come up."""
        self._slot.events.emit(
            kind,
            engine=self._slot.name,
            pid=serving.server.pid,
            port=serving.server.port,
            version=serving.confirmed.manifest.version,
            seconds=round(self.start_s, 3),
        )

    def _report_failed_start(self, why: str) -> None:
        self._slot.error = why
        self._slot.events.emit("engine.restart_failed", engine=self._slot.name, why=why)
