"""The learner's end of direct transfer: reads a published version and broadcasts it into paused servers.

SGLang's own function creates the process groups, so that both ends agree.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from actors.engines.messages import InvalidWeights, Rendezvous, TensorBucketSpec
from actors.engines.weights import weight_files
from actors.engines.weights.tensor_buckets import plan_buckets, read_bucket
from protocol.errors import InfraError
from protocol.processes.loopback import find_free_port
from protocol.processes.rendezvous import guard_process_groups
from protocol.weights import WeightManifest, format_version

if TYPE_CHECKING:  # it loads Ray
    from actors.runtime.remote import Remote

_GROUP_TIMEOUT_S = 60.0
"""Longest broadcast of one bucket, and longest wait for all ranks to join a group."""


class BroadcastError(InfraError):
    """A bucket did not reach every rank of a server."""


class WeightSender:
    """Broadcasts weights from the learner's host.  A plain class that runs as an actor."""

    def __init__(self, address: str, device: Literal["cpu", "cuda"]) -> None:
        """Groups rendezvous at this host's ``address``.  ``cuda`` broadcasts over NCCL from this process's GPU."""
        self._address: str = address
        self._device: Literal["cpu", "cuda"] = device
        self._groups: dict[str, asyncio.Future[Any]] = {}
        """The process group of each group name, done once all ranks have joined."""

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        await asyncio.to_thread(weight_files.check_digest, manifest)
        await asyncio.to_thread(weight_files.read_shapes, Path(manifest.path))
        try:
            return await asyncio.to_thread(plan_buckets, Path(manifest.path))
        except OSError as error:
            raise InvalidWeights(f"version {format_version(manifest.version)} cannot be read: {error}") from error

    async def open_group(self, name: str, ranks: int) -> Rendezvous:
        backend = "nccl" if self._device == "cuda" else "gloo"
        meeting = Rendezvous(name, self._address, find_free_port(), 1 + ranks, backend)
        self._groups[name] = asyncio.get_running_loop().run_in_executor(None, join_process_group, meeting)
        return meeting

    async def broadcast_bucket(self, name: str, bucket: TensorBucketSpec) -> None:
        try:
            group = await asyncio.shield(self._groups[name])
            await asyncio.to_thread(_broadcast, group, bucket, self._device)
        except (KeyError, OSError, RuntimeError) as error:
            raise BroadcastError(f"{bucket.names[0]} was not sent to {name}: {error}") from error

    async def close_group(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is None or group.cancelled() or group.cancel():  # a group that is still waiting ends by its timeout
            return
        if group.exception() is None:
            await asyncio.to_thread(_destroy, group.result())


class RemoteWeightSender:
    """The sender's actor as a :class:`~actors.engines.weights.broadcast_loader.BroadcastSender`."""

    def __init__(self, remote: Remote[WeightSender]) -> None:
        self._remote = remote

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        return await self._remote.call(WeightSender.list_buckets, manifest)

    async def open_group(self, name: str, ranks: int) -> Rendezvous:
        return await self._remote.call(WeightSender.open_group, name, ranks)

    async def broadcast_bucket(self, name: str, bucket: TensorBucketSpec) -> None:
        await self._remote.call(WeightSender.broadcast_bucket, name, bucket)

    async def close_group(self, name: str) -> None:
        await self._remote.call(WeightSender.close_group, name)


def join_process_group(meeting: Rendezvous) -> Any:
    """Return the process group once all have joined.  Raises OSError or RuntimeError."""
    guard_process_groups()
    join: Any = importlib.import_module("sglang.srt.utils.common").init_custom_process_group
    return join(
        backend=meeting.backend,
        init_method=f"tcp://{meeting.address}:{meeting.port}",
        world_size=meeting.world,
        rank=0,
        group_name=meeting.name,
        timeout=timedelta(seconds=_GROUP_TIMEOUT_S),
    )


def _destroy(group: Any) -> None:
    """Close the group's connections; a server that waits for a bucket gets an error."""
    untyped: Any = importlib.import_module("torch.distributed")
    untyped.destroy_process_group(group)


def _broadcast(group: Any, bucket: TensorBucketSpec, device: str) -> None:
    """Broadcast one bucket from rank 0.  Raises OSError or RuntimeError."""
    import torch

    flat = read_bucket(bucket, pinned=device == "cuda").flat.to(device)
    untyped: Any = torch.distributed
    untyped.broadcast(flat.view(torch.uint8), src=0, group=group)
    if device == "cuda":
        torch.cuda.synchronize()
