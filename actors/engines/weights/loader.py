"""Base of the four weight loaders, and the one that lets the server read files.

``stage_weights`` does everything that can be done while the server decodes: reading, checking, copying into memory.
Its result is then loaded, during a pause if the loader ``needs_pause``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from actors.engines.server.active_server import ActiveServer
from actors.engines.server.client import SGLangClient
from actors.engines.weights import weight_files
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest


@dataclass(frozen=True, slots=True, weakref_slot=True)
class StagedWeights:
    """A version that a server can load at once."""

    manifest: WeightManifest
    load: Callable[[SGLangClient], Awaitable[str | None]]
    """Loads the version into a server.  Returns the checksum of the server's weights after the load (or still before
    it), or None if it was not requested.  Raises :class:`~actors.engines.messages.ServerLost` or
    :class:`~actors.engines.messages.WeightLoadError`; then the server's weights are unknown."""
    prefetch_ms: float = 0.0
    """Milliseconds that staging took."""


class WeightLoader(ABC):
    """Loads versions into an engine's servers.  The base class is for whole weights, which replace the old ones."""

    needs_pause = True
    """True if the server must not decode during a load."""

    async def check_version(self, manifest: WeightManifest, model: ModelShape) -> None:
        """Raises :class:`~actors.engines.messages.InvalidWeights` if no server may be started with the version."""
        await asyncio.to_thread(weight_files.check_weights, manifest, model)

    @abstractmethod
    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedWeights:
        """Do everything that the server may decode during.  Raises InfraError, and
        :class:`~actors.engines.messages.InvalidWeights` if no server may be told of the version."""

    def start_weights(self, manifest: WeightManifest) -> WeightManifest:
        """Return the weights that a server is started on in order to serve ``manifest``."""
        return manifest

    async def attach_server(self, serving: ActiveServer, manifest: WeightManifest) -> None:  # noqa: B027  # an optional step
        """Let a server that has just started on its start weights serve ``manifest``; no request has reached it.
        Raises :class:`~actors.engines.messages.ServerLost` or :class:`~actors.engines.messages.WeightLoadError`."""

    async def load_unpaused(self, serving: ActiveServer, staged: StagedWeights, deadline: float) -> float:
        """Load and confirm a version while the server decodes; return the milliseconds that took.

        Only for loaders without ``needs_pause``.  ``deadline`` is on the loop's clock.  Raises
        :class:`~actors.engines.messages.ServerLost` or :class:`~actors.engines.messages.WeightLoadError`; then the
        server serves what it served."""
        raise NotImplementedError

    async def run_cleanup(self) -> None:  # noqa: B027  # an optional step
        """Until cancelled, or while there is something to do: free what no request uses any more."""


class FileWeightLoader(WeightLoader):
    """The server reads the version's folder, which staging has brought into the page cache."""

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedWeights:
        await asyncio.to_thread(weight_files.check_weights, manifest, model)
        return stage_checked_files(manifest)


def stage_checked_files(manifest: WeightManifest) -> StagedWeights:
    """Return a version whose files were checked, to be read by the server."""

    async def load(client: SGLangClient) -> str:
        return await client.update_weights_and_checksum(manifest.path, manifest.version)

    return StagedWeights(manifest, load)
