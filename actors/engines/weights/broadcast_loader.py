"""Weights straight from the learner's host into a server that stands still, by broadcast (NCCL, or gloo).

Nothing is kept on the engine's host, and nothing can be fetched beforehand: the transfer is part of the pause, and is
reported so.  The server's ranks and the sender are one process group, made when a server takes weights for the first
time, and anew after anything went wrong.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from actors.engines.messages import InvalidWeights, Rendezvous, WeightLoadError
from actors.engines.server.client import SGLangClient
from actors.engines.weights.loader import StagedLoad
from actors.engines.weights.tensor_buckets import TensorBucketSpec
from actors.engines.weights.weight_files import ModelShape
from protocol.errors import InfraError
from protocol.processes.task_groups import task_group
from protocol.weights import WeightManifest, format_version

_PART_S = 5.0


class BroadcastSender(Protocol):
    """The learner's host, as an engine sees it."""

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        """What is broadcast of a version, in this order, checked to be what was published.  Raises InfraError."""
        ...

    async def open_group(self, name: str, ranks: int) -> Rendezvous:
        """Wait, from now on, for so many of a server's ranks."""
        ...

    async def broadcast_bucket(self, name: str, piece: TensorBucketSpec) -> None:
        """Broadcast a piece to the group.  Raises InfraError, at the latest when the group's patience is over."""
        ...

    async def close_group(self, name: str) -> None:
        """Forget a group; harmless where it is not known."""
        ...


class BroadcastWeightLoader:
    """One engine's; ``ranks`` are its server's."""

    def __init__(self, name: str, ranks: int, sender: BroadcastSender) -> None:
        self._name, self._ranks, self._sender = name, ranks, sender
        self._met: tuple[SGLangClient, str] | None = None
        """The server that shares a group with the sender, and the group's name."""

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        pieces = await self._sender.list_buckets(manifest)
        shapes = {name: shape for piece in pieces for name, shape in zip(piece.names, piece.shapes, strict=True)}
        if difference := model.differences(shapes):
            raise InvalidWeights(f"version {format_version(manifest.version)} is not the model's: {difference}")

        async def load(client: SGLangClient) -> None:
            async with client.weight_update(), self._group(client) as group:
                for index, piece in enumerate(pieces, 1):
                    version = manifest.version if index == len(pieces) else None
                    async with task_group() as both:
                        both.create_task(self._sender.broadcast_bucket(group, piece))
                        both.create_task(client.update_weights_from_broadcast(group, piece, version))

        return load

    @asynccontextmanager
    async def _group(self, client: SGLangClient) -> AsyncGenerator[str]:
        """The name of the group with this server, which is left after an error: a server that waits for a piece waits
        until then.  Raises :class:`LoadError`."""
        try:
            if self._met is None or self._met[0] is not client:
                await self._part()
                self._met = client, f"{self._name}-{secrets.token_hex(4)}"
                await client.init_weights_update_group(await self._sender.open_group(self._met[1], self._ranks))
            yield self._met[1]
        except BaseException as error:
            with suppress(InfraError, TimeoutError):
                async with asyncio.timeout(_PART_S):
                    await self._part()
            if isinstance(error, InfraError):
                raise WeightLoadError(f"the broadcast broke off: {error}") from error
            raise

    async def _part(self) -> None:
        if self._met is not None:
            name, self._met = self._met[1], None
            await self._sender.close_group(name)
