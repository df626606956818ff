"""Evicts the images of one engine when they exceed the quota."""

from __future__ import annotations

import asyncio

from sandbox.docker.engine import DockerEngine
from sandbox.images import engine_calls
from sandbox.images.ledger import ImageLedger
from sandbox.images.quota import choose_image_to_evict, used_bytes


class ImageEviction:
    """Removes images that the ledger records as ours. Images that are reserved or used by a container stay."""

    def __init__(self, engine: DockerEngine, ledger: ImageLedger, base_image: str) -> None:
        self._engine, self._ledger, self._base_image = engine, ledger, base_image
        self._lock = asyncio.Lock()
        self.evicted = 0
        """Number of images removed so far."""

    async def evict_to(self, quota_bytes: int) -> tuple[str, ...]:
        """Evict images, least recently used first, until they fit the quota; 0 evicts all. Returns the evicted names.

        The quota is missed where too many images are reserved or in use. Raises DockerEngineError.
        """
        evicted_names: list[str] = []
        kept = {self._base_image}
        async with self._lock:
            while True:
                images = await engine_calls.list_images(self._engine)
                last_used = self._ledger.last_used()
                if quota_bytes and used_bytes(images, last_used) <= quota_bytes:
                    return tuple(evicted_names)
                name = choose_image_to_evict(images, last_used, await engine_calls.images_in_use(self._engine), kept)
                if name is None:
                    return tuple(evicted_names)
                if await self._evict(name):
                    evicted_names.append(name)
                kept.add(name)

    async def _evict(self, name: str) -> bool:
        with self._ledger.lock_exclusively(name) as locked:
            if not locked or not await engine_calls.remove_image(self._engine, name):
                return False
            self._ledger.forget(name)
            self.evicted += 1
            return True
