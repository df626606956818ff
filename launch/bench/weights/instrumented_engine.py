"""The floor: an engine whose server is told of new weights by hand, with the same requests under way."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from actors.engines.engine import Engine
from actors.engines.weights.loader import WeightLoader
from actors.engines.weights.swap import ActiveServer
from actors.engines.weights.updater import InPlaceUpdater
from protocol.weights import WeightManifest


class InstrumentedEngine(Engine):
    """A run's engine, with that beside its own ``load``."""

    @property
    def sampled_tokens(self) -> int:
        """Sampled so far, those of requests under way included."""
        return self._dispatch.sampled_tokens

    async def stage_with(self, handover: WeightLoader, manifest: WeightManifest, deadline_s: float) -> None:
        """:meth:`stage` and the :meth:`load` after it are those of an engine whose settings name this handover."""
        settings = self._settings
        self._updates = InPlaceUpdater(handover, grace_s=settings.load_grace_s, item_bytes=settings.item_bytes)
        await self.stage_weights(manifest, deadline_s)

    async def update_directly(self, manifest: WeightManifest) -> float:
        """The server's own pause, load and continue, and nothing else: milliseconds."""
        async with self._dispatch_paused(manifest) as serving:
            client, begun = serving.server.client, time.monotonic()
            await client.pause()
            await client.update_weights(manifest.path, manifest.version)
            await client.resume()
            return (time.monotonic() - begun) * 1000

    async def update_after_drain(self, manifest: WeightManifest) -> float:
        """The server's own load without a pause, which waits until what it samples has ended: milliseconds."""
        async with self._dispatch_paused(manifest) as serving:
            begun = time.monotonic()
            await serving.server.client.update_weights(manifest.path, manifest.version)
            return (time.monotonic() - begun) * 1000

    @asynccontextmanager
    async def _dispatch_paused(self, manifest: WeightManifest) -> AsyncGenerator[ActiveServer]:
        """Nothing new is dispatched meanwhile; then the server is known to hold the manifest's weights."""
        async with self._update_lock:
            serving = self._serving
            assert serving is not None  # noqa: S101  # it was started
            self._dispatch.dispatch_open.clear()
            try:
                yield serving
                serving.confirm_weights(manifest, await serving.server.client.read_checksum())
            finally:
                self._serve(serving)
