"""Brings weight versions into an engine's server: stage while it decodes, load, confirm, continue.

A version is staged first.  Then, under the slot's lock, either the server is paused (dispatch closed → pause → load →
version and checksum confirmed → resume → dispatch open), or, by a loader that needs no pause, the version is loaded
beside the old one.  This runs in the engine's own task group, so a caller that is cancelled or dies leaves nothing
paused.

The server never continues on unknown weights.  A load that never began continues on the old weights; one that the
server refused is followed by a reload of the last confirmed weights, compared by checksum; after anything else the
server is marked as failed, and the supervisor replaces it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from actors.engines.messages import EngineState, ServerLost, ServerRestarting, WeightLoadError, WeightLoadReport
from actors.engines.server.active_server import ActiveServer
from actors.engines.server.client import SGLangClient
from actors.engines.server_slot import PauseRecord, ServerSlot
from actors.engines.weights import weight_files
from actors.engines.weights.loader import StagedWeights, WeightLoader
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest, format_version


class WeightUpdater:
    """The weights of one engine.  ``loader`` may be exchanged between two loads."""

    def __init__(self, slot: ServerSlot, loader: WeightLoader) -> None:
        self._slot, self.loader = slot, loader
        self._grace_s, self._item_bytes = slot.spec.load_grace_s, slot.settings.item_bytes
        self.model: ModelShape | None = None
        """The run's model, once it was read."""
        self._staged: StagedWeights | None = None

    @property
    def staged_manifest(self) -> WeightManifest | None:
        """The version that is staged and not loaded yet."""
        return self._staged.manifest if self._staged is not None else None

    async def open_model(self, manifest: WeightManifest) -> ModelShape:
        """Read the run's model and check that ``manifest`` fits it.  Raises :class:`InvalidWeights`."""
        model = await asyncio.to_thread(weight_files.read_model_shape, Path(self._slot.spec.model_path))
        await self.loader.check_version(manifest, model)
        self.model = model
        return model

    def serves(self, manifest: WeightManifest) -> bool:
        """Return whether the server is confirmed to serve this version and has its memory."""
        slot = self._slot
        return slot.serving is not None and slot.version == manifest.version and slot.memory_lease is None

    async def stage(self, manifest: WeightManifest, deadline_s: float) -> None:
        """See :meth:`actors.engines.interface.Engine.stage_weights`."""
        if self.serves(manifest) or self.staged_manifest == manifest:
            return
        self._staged = None  # it takes as much memory again, which may not be there
        try:
            async with asyncio.timeout(deadline_s):
                self._staged = await self._stage(manifest)
        except TimeoutError:
            label = format_version(manifest.version)
            raise WeightLoadError(
                f"engine {self._slot.name} has not read version {label} in {deadline_s:g} s: raise "
                "engine.update_timeout_s if its disk takes longer"
            ) from None

    async def load(self, manifest: WeightManifest, deadline_s: float, *, wait_for_restart: bool) -> WeightLoadReport:
        """See :meth:`actors.engines.interface.Engine.load_weights`."""
        slot = self._slot
        serving, group = slot.serving, slot.group
        if serving is None or group is None or slot.state is EngineState.STOPPED:
            raise WeightLoadError(f"engine {slot.name} is {slot.state} and cannot load weights")
        if self.serves(manifest):
            return WeightLoadReport(version=manifest.version, checksum=serving.confirmed.checksum)
        if slot.memory_lease is None:
            self._require_server(wait_for_restart=wait_for_restart)  # before the staged version is used up
        deadline = asyncio.get_running_loop().time() + deadline_s
        try:
            async with asyncio.timeout_at(deadline):
                staged = self._take_staged(manifest) or await self._stage(manifest)
                outcome = None
                if slot.memory_lease is not None:
                    outcome = await slot.memory_lease.end_with_weights(manifest)
                    if isinstance(outcome, WeightLoadReport) and outcome.version != manifest.version:
                        outcome = None  # the lease had expired, and the server resumed on the old weights
                while outcome is None:
                    self._require_server(wait_for_restart=wait_for_restart)
                    loading = group.create_task(self._load(staged, deadline))
                    outcome = await asyncio.shield(loading)
        except TimeoutError:
            raise WeightLoadError(
                f"engine {slot.name} did not take version {format_version(manifest.version)} within "
                f"{deadline_s:g} s; it is {slot.state}"
            ) from None
        if isinstance(outcome, WeightLoadError):
            raise outcome
        return outcome

    async def load_staged(self, serving: ActiveServer) -> None:
        """Load the staged version into a new server before requests are dispatched to it.  A failure shows at the next
        load."""
        staged = self._staged
        if staged is None or staged.manifest.version == serving.confirmed.manifest.version:
            return
        deadline = asyncio.get_running_loop().time() + self._grace_s
        with suppress(ServerLost, WeightLoadError, TimeoutError):
            if self.loader.needs_pause:
                await self.swap(serving, staged, deadline)
            else:
                await self.loader.load_unpaused(serving, staged, deadline)

    async def _stage(self, manifest: WeightManifest) -> StagedWeights:
        if self.model is None:
            raise WeightLoadError(f"engine {self._slot.name} is {self._slot.state} and cannot load weights")
        begun = time.monotonic()
        with self._slot.activity.track("loading"):
            staged = await self.loader.stage_weights(manifest, self.model)
        return replace(staged, prefetch_ms=(time.monotonic() - begun) * 1000)

    def _take_staged(self, manifest: WeightManifest) -> StagedWeights | None:
        """Return the staged weights if they are of this version; another version is dropped."""
        staged, self._staged = self._staged, None
        return staged if staged is not None and staged.manifest == manifest else None

    def _require_server(self, *, wait_for_restart: bool) -> None:
        """Raise :class:`ServerRestarting` if there is no server and the caller does not wait for the next."""
        serving = self._slot.serving
        if not wait_for_restart and (serving is None or serving.failure.done()):
            raise ServerRestarting(f"engine {self._slot.name} lost its server and starts another")

    async def _load(self, staged: StagedWeights, deadline: float) -> WeightLoadReport | WeightLoadError | None:
        """Load a staged version.  None if the server has failed: the supervisor is next to get the lock, so the caller
        tries again."""
        slot, manifest = self._slot, staged.manifest
        async with slot.lock:
            serving = slot.serving
            if serving is None or serving.failure.done():
                return None
            label = format_version(manifest.version)
            if asyncio.get_running_loop().time() >= deadline:
                return WeightLoadError(f"version {label} did not begin to load before its deadline")
            if slot.version == manifest.version:
                checksum, prefetch_ms = serving.confirmed.checksum, staged.prefetch_ms
                return WeightLoadReport(version=manifest.version, prefetch_ms=prefetch_ms, checksum=checksum)
            pause = PauseRecord()
            try:
                if self.loader.needs_pause:
                    with slot.paused(serving) as pause:
                        load_ms = await self.swap(serving, staged, deadline)
                else:
                    load_ms = await self.loader.load_unpaused(serving, staged, deadline)
            except (ServerLost, WeightLoadError, TimeoutError) as error:
                why = f"version {label} was not taken: {str(error) or 'no answer in time'}"
                slot.events.emit(
                    "engine.load_failed",
                    engine=slot.name,
                    version=manifest.version,
                    why=why,
                    pause_ms=round(pause.ms, 2),
                )
                return WeightLoadError(why)
            slot.queue.counters.loads += 1
            slot.events.emit(
                "engine.loaded",
                engine=slot.name,
                version=manifest.version,
                pause_ms=round(pause.ms, 2),
                load_ms=round(load_ms, 2),
                prefetch_ms=round(staged.prefetch_ms, 2),
            )
            return WeightLoadReport(
                version=manifest.version,
                pause_ms=pause.ms,
                paused_requests=pause.requests,
                load_ms=load_ms,
                prefetch_ms=staged.prefetch_ms,
                checksum=serving.confirmed.checksum,
            )

    # The following methods need exclusive use of the server.  On return it decodes with the new weights; after an error
    # it decodes with the last confirmed ones or has failed.

    async def swap(self, serving: ActiveServer, staged: StagedWeights, deadline: float) -> float:
        """Pause the server, load a staged version and resume; return the load's milliseconds.

        A swap does not begin after ``deadline`` (on the loop's clock) and then has the grace of the engine's spec
        beyond it.  Raises :class:`ServerLost`, :class:`WeightLoadError` or TimeoutError.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await serving.server.client.pause()
        except (ServerLost, TimeoutError):
            await self._resume_old(serving, reload=False)
            raise
        return await self._load_paused(serving, staged, deadline)

    async def release_memory(self, serving: ActiveServer) -> None:
        """Let the server release its memory.  If it does not, it has failed, and is stopped."""
        try:
            async with asyncio.timeout(self._grace_s):
                await serving.server.client.release_memory(self._grace_s)
        except (ServerLost, TimeoutError) as error:
            serving.mark_failed(f"it did not release its memory: {str(error) or 'no answer in time'}")
        if serving.failure.done():
            await serving.server.stop()

    async def resume_memory(self, serving: ActiveServer, manifest: WeightManifest) -> float:
        """Let the server take its memory back and continue on weights that were checked; otherwise as :meth:`swap`."""
        with serving.mark_failed_on_error("it did not get its memory back"):
            async with asyncio.timeout(self._grace_s):
                await serving.server.client.resume_memory()

        async def load(client: SGLangClient) -> None:
            """The checksum is read after the load: what the server held before it has no known one to compare with."""
            await client.update_weights(manifest.path, manifest.version)

        deadline = asyncio.get_running_loop().time() + self._grace_s
        return await self._load_paused(serving, StagedWeights(manifest, load), deadline)

    async def _load_paused(self, serving: ActiveServer, staged: StagedWeights, deadline: float) -> float:
        """Load, confirm and resume a paused server."""
        client, begun = serving.server.client, time.monotonic()
        try:
            async with asyncio.timeout_at(deadline + self._grace_s):
                checksum = await _load_into_server(client, staged)
                load_ms = (time.monotonic() - begun) * 1000
                checksum = await self._confirm(serving, staged.manifest, checksum)
        except (ServerLost, WeightLoadError):
            await self._resume_old(serving, reload=True)
            raise
        except BaseException:
            serving.mark_failed("its weights are unknown: a load did not end")
            raise
        serving.confirm_weights(staged.manifest, checksum)
        with serving.mark_failed_on_error("it did not continue after a load"):
            async with asyncio.timeout(self._grace_s):
                await client.resume()
        return load_ms

    async def _confirm(self, serving: ActiveServer, manifest: WeightManifest, checksum: str | None) -> str:
        """Return the checksum of the weights in use, or raise :class:`WeightLoadError` unless they are the manifest's.

        ``checksum`` was reported during the load; it is used unless it may be that of the old weights."""
        before = serving.confirmed
        if checksum is None or checksum == before.checksum:
            checksum = await serving.server.client.read_checksum_of(manifest.version)
        same_files = bool(manifest.sha256) and manifest.sha256 == before.manifest.sha256
        if same_files and checksum != before.checksum:
            raise WeightLoadError("equal files gave the server unequal weights")
        if not same_files and checksum == before.checksum:
            old, new = Path(before.manifest.path), Path(manifest.path)
            if await asyncio.to_thread(weight_files.weights_differ, old, new, self._item_bytes):
                raise WeightLoadError("the server says that it loaded the new weights but holds the old ones")
        return checksum

    async def _resume_old(self, serving: ActiveServer, *, reload: bool) -> None:
        """Continue on the last confirmed weights, reloaded and compared if ``reload``; otherwise the server has failed.

        The explicit load is needed because the server's own rollback reads from the new path.
        """
        client, confirmed = serving.server.client, serving.confirmed
        try:
            async with asyncio.timeout(self._grace_s):
                if reload:
                    await client.update_weights(confirmed.manifest.path, confirmed.manifest.version)
                if reload and await client.read_checksum() != confirmed.checksum:
                    serving.mark_failed("the last confirmed weights could not be restored after a failed load")
                else:
                    await client.resume()
        except (ServerLost, TimeoutError) as error:
            serving.mark_failed(f"its weights are unknown after a failed load: {str(error) or 'no answer in time'}")


async def _load_into_server(client: SGLangClient, staged: StagedWeights) -> str | None:
    """Load staged weights.  Raises :class:`ServerLost` or :class:`WeightLoadError`, also for errors on our side of the
    transfer, such as a device without memory for a bucket."""
    try:
        return await staged.load(client)
    except (OSError, RuntimeError) as error:
        raise WeightLoadError(f"the weights could not be transferred: {type(error).__name__}: {error}") from error
