"""A learner's lease on the memory of a colocated engine: ended by new weights, or by time.

The learner keeps renewing the lease; a lease that is neither ended nor renewed ends at its deadline.  No I/O:
:class:`actors.engines.memory_offload.MemoryOffload` releases the memory and takes it back.
"""

from __future__ import annotations

import asyncio

from actors.engines.messages import WeightLoadError, WeightLoadReport
from protocol.weights import WeightManifest


class MemoryLease:
    """One lease.  ``task`` holds the server for as long as it lasts and ends with it."""

    task: asyncio.Task[WeightLoadReport | WeightLoadError | None]

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.released = asyncio.Event()
        """Set once the memory is released."""
        self.is_ending = False
        """The server is taking its memory back."""
        self._weights: asyncio.Future[WeightManifest] = loop.create_future()
        self._deadline = loop.time()

    def renew(self, seconds: float) -> None:
        """Let the lease last this long from now on."""
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def end_with_weights(self, manifest: WeightManifest) -> WeightLoadReport | WeightLoadError | None:
        """End the lease: the server continues with these weights.  Returns the outcome of that load."""
        if not self._weights.done():
            self._weights.set_result(manifest)
        return await asyncio.shield(self.task)

    async def wait_until_ended(self) -> WeightManifest | None:
        """Return the weights that ended the lease, or None once it has expired."""
        manifest = await self._wait_for_weights()
        self.is_ending = True
        return manifest

    async def _wait_for_weights(self) -> WeightManifest | None:
        while True:
            deadline = self._deadline
            try:
                async with asyncio.timeout_at(deadline):
                    return await asyncio.shield(self._weights)
            except TimeoutError:
                if deadline == self._deadline:  # it was not renewed meanwhile
                    return None
