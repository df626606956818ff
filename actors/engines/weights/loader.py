"""How a server that stands still gets a version's weights: the last leg of every path, one interface.

``stage`` is everything that can be done while the server decodes: reading, checking, copying into memory.  What it
gives is done in the pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from actors.engines.server.client import ServerWeights, SGLangClient
from actors.engines.weights import weight_files
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest

StagedLoad = Callable[[SGLangClient], Awaitable[ServerWeights | None]]
"""Tells a server that stands still to take what was staged.  What it gives, if anything, is what the server said it
held, before or after, not between.  Raises :class:`~actors.engines.messages.ServerLost` or
:class:`~actors.engines.messages.LoadError`; its weights are unknown then."""


class WeightLoader(Protocol):
    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        """Raises :class:`~actors.engines.messages.BadWeights` for what must not be given to a server."""
        ...


class FileWeightLoader:
    """The server reads the folder, which is in the page cache by then."""

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        await asyncio.to_thread(weight_files.check_weights, manifest, model)
        return staged_file_load(manifest)


def staged_file_load(manifest: WeightManifest) -> StagedLoad:
    """Of files that were checked before."""

    async def load(client: SGLangClient) -> ServerWeights:
        return await client.update_weights_and_checksum(manifest.path, manifest.version)

    return load
