"""How a server comes by a version: one interface, so that the engine's life is the same for each.

- :class:`InPlace`: the version's weights take the place of the old ones in a server that stands still.
- :class:`~actors.engines.weights.adapter_updater.ByName`: the version is an adapter, which the server loads beside others while it
  decodes.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Protocol

from actors.engines.weights import weight_files
from actors.engines.weights.loader import StagedLoad, WeightLoader
from actors.engines.weights.swap import ActiveServer, swap_weights
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest


class WeightUpdater(Protocol):
    async def check_version(self, manifest: WeightManifest, model: ModelShape) -> None:
        """Raises :class:`~actors.engines.messages.BadWeights` for what a server must not be started with."""
        ...

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        """Do all that can be done while the server decodes.  Raises InfraError, and
        :class:`~actors.engines.messages.BadWeights` for what a server must not be told of."""
        ...

    def start_weights(self, manifest: WeightManifest) -> WeightManifest:
        """The weights that a server is started on which is to serve ``manifest``."""
        ...

    async def attach_server(self, serving: ActiveServer, manifest: WeightManifest) -> None:
        """Let a server that has just started, on those weights, serve ``manifest``.  No request has been dispatched to
        it.  Raises :class:`~actors.engines.messages.ServerLost` or :class:`~actors.engines.messages.LoadError`."""
        ...

    async def apply_weights(
        self,
        serving: ActiveServer,
        manifest: WeightManifest,
        staged: StagedLoad,
        still: AbstractContextManager[None],
        deadline: float,
    ) -> float:
        """Let it serve ``manifest``, which was staged, instead of what it serves; how many milliseconds the load took.
        Requests are held, and the engine says that it stands still, within ``still`` and nowhere else.

        Not begun at ``deadline`` (on the loop's clock) it is not begun any more.  Raises
        :class:`~actors.engines.messages.ServerLost`, :class:`~actors.engines.messages.LoadError` or TimeoutError; then
        the server serves what it served, or is condemned.
        """
        ...

    async def run_cleanup(self) -> None:
        """Until cancelled, or for as long as there is something to do: free what no request uses any more."""
        ...


class InPlaceUpdater:
    """See the module and :mod:`.exchange`."""

    def __init__(self, handover: WeightLoader, *, grace_s: float, item_bytes: int) -> None:
        self._handover, self._grace_s, self._item_bytes = handover, grace_s, item_bytes

    async def check_version(self, manifest: WeightManifest, model: ModelShape) -> None:
        await asyncio.to_thread(weight_files.check_weights, manifest, model)

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        return await self._handover.stage_weights(manifest, model)

    def start_weights(self, manifest: WeightManifest) -> WeightManifest:
        return manifest

    async def attach_server(self, serving: ActiveServer, manifest: WeightManifest) -> None:
        """It has been started on it."""

    async def apply_weights(
        self,
        serving: ActiveServer,
        manifest: WeightManifest,
        staged: StagedLoad,
        still: AbstractContextManager[None],
        deadline: float,
    ) -> float:
        with still:
            return await swap_weights(
                serving, manifest, staged, deadline=deadline, grace_s=self._grace_s, item_bytes=self._item_bytes
            )

    async def run_cleanup(self) -> None:
        """Nothing is left of what was exchanged."""
