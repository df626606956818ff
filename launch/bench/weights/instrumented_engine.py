"""A run's engine with direct calls of the server's own update API: the lower bound of an update's cost."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from actors.engines.engine import SGLangEngine
from actors.engines.messages import EngineUnavailable
from actors.engines.server.client import SGLangClient
from actors.engines.weights.loader import WeightLoader
from protocol.weights import WeightManifest


class InstrumentedEngine(SGLangEngine):
    """An engine with direct updates besides ``load_weights``."""

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled so far, requests in flight included."""
        return self.slot.queue.sampled_tokens

    async def stage_with(self, loader: WeightLoader, manifest: WeightManifest, deadline_s: float) -> None:
        """Stage a version by ``loader``, which also does the next :meth:`SGLangEngine.load_weights`."""
        self.weights.loader = loader
        await self.stage_weights(manifest, deadline_s)

    async def update_directly(self, manifest: WeightManifest) -> float:
        """Do the server's own pause, load and resume, and nothing else; return the milliseconds."""
        async with self._updating(manifest) as client:
            begun = time.monotonic()
            await client.pause()
            await client.update_weights(manifest.path, manifest.version)
            await client.resume()
            return (time.monotonic() - begun) * 1000

    async def update_after_drain(self, manifest: WeightManifest) -> float:
        """Do the server's own load without a pause, which waits for its requests to end; return the milliseconds."""
        async with self._updating(manifest) as client:
            begun = time.monotonic()
            await client.update_weights(manifest.path, manifest.version)
            return (time.monotonic() - begun) * 1000

    @asynccontextmanager
    async def _updating(self, manifest: WeightManifest) -> AsyncGenerator[SGLangClient]:
        """Dispatch nothing during the block, in which nobody else loads weights or replaces the server; then the server
        holds the manifest's weights.  It decodes on unless the block pauses it."""
        async with self.slot.lock:
            serving = self.slot.serving
            if serving is None:
                raise EngineUnavailable(f"engine {self.slot.name} has no server")
            with self.slot.paused(serving):
                client = serving.server.client
                yield client
                serving.confirm_weights(manifest, await client.read_checksum())
