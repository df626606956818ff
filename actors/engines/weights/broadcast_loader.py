"""Broadcasts weights from the learner's host straight into a paused server, over NCCL or gloo.

Nothing is kept on the engine's host and nothing can be fetched beforehand, so the transfer is part of the pause and is
reported as such.  The server's ranks and the sender form one process group, which is made for a server's first load and
again after any error.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from actors.engines.messages import InvalidWeights, Rendezvous, TensorBucketSpec, WeightLoadError
from actors.engines.server.client import SGLangClient
from actors.engines.weights.loader import StagedWeights, WeightLoader
from actors.engines.weights.weight_files import ModelShape
from protocol.errors import InfraError
from protocol.processes.task_groups import task_group
from protocol.weights import WeightManifest, format_version

_LEAVE_S = 5.0
"""Longest wait for the sender to close a group after an error."""


class BroadcastSender(Protocol):
    """The learner's host, as an engine sees it."""

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        """Return the buckets of a version in the order of their broadcast, after a check of its files.  Raises
        InfraError."""
        ...

    async def open_group(self, name: str, ranks: int) -> Rendezvous:
        """Open a group and wait in the background for this many server ranks."""
        ...

    async def broadcast_bucket(self, name: str, bucket: TensorBucketSpec) -> None:
        """Broadcast a bucket to a group.  Raises InfraError, at the latest after the group's timeout."""
        ...

    async def close_group(self, name: str) -> None:
        """Close a group; harmless if it is unknown."""
        ...


class BroadcastWeightLoader(WeightLoader):
    """Receives an engine's weights from a sender; its server has this many ranks."""

    def __init__(self, name: str, ranks: int, sender: BroadcastSender) -> None:
        self._name, self._ranks, self._sender = name, ranks, sender
        self._joined: tuple[SGLangClient, str] | None = None
        """The server that shares a process group with the sender, and the group's name."""

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedWeights:
        buckets = await self._sender.list_buckets(manifest)
        shapes = {name: shape for bucket in buckets for name, shape in zip(bucket.names, bucket.shapes, strict=True)}
        if difference := model.differences(shapes):
            raise InvalidWeights(f"version {format_version(manifest.version)} is not the model's: {difference}")

        async def load(client: SGLangClient) -> None:
            async with client.weight_update(), self._group(client) as group:
                for index, bucket in enumerate(buckets, 1):
                    version = manifest.version if index == len(buckets) else None
                    async with task_group() as both:
                        both.create_task(self._sender.broadcast_bucket(group, bucket))
                        both.create_task(client.update_weights_from_broadcast(group, bucket, version))

        return StagedWeights(manifest, load)

    @asynccontextmanager
    async def _group(self, client: SGLangClient) -> AsyncGenerator[str]:
        """The name of the group with this server.  After an error the group is closed, which frees a server that waits
        for a bucket.  Raises :class:`WeightLoadError`."""
        try:
            if self._joined is None or self._joined[0] is not client:
                await self._leave()
                self._joined = client, f"{self._name}-{secrets.token_hex(4)}"
                await client.init_weights_update_group(await self._sender.open_group(self._joined[1], self._ranks))
            yield self._joined[1]
        except BaseException as error:
            with suppress(InfraError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._leave()
            if isinstance(error, InfraError):
                raise WeightLoadError(f"the broadcast broke off: {error}") from error
            raise

    async def _leave(self) -> None:
        if self._joined is not None:
            name, self._joined = self._joined[1], None
            await self._sender.close_group(name)
