"""The floor: an engine whose server is told of new weights by hand, with the same requests under way."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from actors.engines.engine import Engine
from actors.engines.exchange import Serving
from actors.engines.handover import Handover
from actors.engines.updates import InPlace
from protocol.weights import WeightManifest


class HandEngine(Engine):
    """A run's engine, with that beside its own ``load``."""

    @property
    def tokens(self) -> int:
        """Sampled so far, those of requests under way included."""
        return self._dispatch.tokens

    async def stage_by(self, handover: Handover, manifest: WeightManifest, deadline_s: float) -> None:
        """:meth:`stage` and the :meth:`load` after it are those of an engine whose settings name this handover."""
        settings = self._settings
        self._updates = InPlace(handover, grace_s=settings.load_grace_s, item_bytes=settings.item_bytes)
        await self.stage(manifest, deadline_s)

    async def by_hand(self, manifest: WeightManifest) -> float:
        """The server's own pause, load and continue, and nothing else: milliseconds."""
        async with self._held(manifest) as serving:
            client, begun = serving.server.client, time.monotonic()
            await client.pause()
            await client.update_weights(manifest.path, manifest.version)
            await client.resume()
            return (time.monotonic() - begun) * 1000

    async def drained(self, manifest: WeightManifest) -> float:
        """The server's own load without a pause, which waits until what it samples has ended: milliseconds."""
        async with self._held(manifest) as serving:
            begun = time.monotonic()
            await serving.server.client.update_weights(manifest.path, manifest.version)
            return (time.monotonic() - begun) * 1000

    @asynccontextmanager
    async def _held(self, manifest: WeightManifest) -> AsyncGenerator[Serving]:
        """Nothing new is dispatched meanwhile; then the server is known to hold the manifest's weights."""
        async with self._update_lock:
            serving = self._serving
            assert serving is not None  # noqa: S101  # it was started
            self._dispatch.gate.clear()
            try:
                yield serving
                serving.confirm(manifest, await serving.server.client.checksum())
            finally:
                self._serve(serving)
