"""The learner's end of the direct path: reads what was published and broadcasts it into servers that stand still.

A group of a server's is joined by the server's own function, so that both ends of it agree.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from actors.engines.messages import InvalidWeights, Rendezvous
from actors.engines.weights import weight_files
from actors.engines.weights.tensor_buckets import TensorBucketSpec, plan_buckets, read_bucket
from protocol.errors import InfraError
from protocol.processes.loopback import find_free_port
from protocol.processes.rendezvous import restrict_tcp_stores_to_address
from protocol.weights import WeightManifest, format_version

if TYPE_CHECKING:  # it loads Ray
    from actors.runtime.remote import Remote

_PATIENCE_S = 60.0
"""What one piece may take, and the meeting of a group."""


class BroadcastError(InfraError):
    """A piece did not get to every rank of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSenderSettings:
    address: str
    """Of this host, where groups meet."""
    device: Literal["cpu", "cuda"]
    """``cuda``: by NCCL, from this process's GPU."""


class WeightSender:
    """See the module.  A plain class; an actor elsewhere."""

    def __init__(self, settings: WeightSenderSettings) -> None:
        self._settings = settings
        self._groups: dict[str, asyncio.Future[Any]] = {}
        """Group's name → its process group, once it has met."""

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        await asyncio.to_thread(weight_files.check_digest, manifest)
        await asyncio.to_thread(weight_files.read_shapes, Path(manifest.path))
        try:
            return await asyncio.to_thread(plan_buckets, Path(manifest.path))
        except OSError as error:
            raise InvalidWeights(f"version {format_version(manifest.version)} cannot be read: {error}") from error

    async def open_group(self, name: str, ranks: int) -> Rendezvous:
        backend = "nccl" if self._settings.device == "cuda" else "gloo"
        place = Rendezvous(name, self._settings.address, find_free_port(), 1 + ranks, backend)
        self._groups[name] = asyncio.get_running_loop().run_in_executor(None, _join, place)
        return place

    async def broadcast_bucket(self, name: str, piece: TensorBucketSpec) -> None:
        try:
            group = await asyncio.shield(self._groups[name])
            await asyncio.to_thread(_broadcast, group, piece, self._settings.device)
        except (KeyError, OSError, RuntimeError) as error:
            raise BroadcastError(f"{piece.names[0]} was not sent to {name}: {error}") from error

    async def close_group(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is None or group.cancelled() or group.cancel():  # one that has not met gives up by itself
            return
        if group.exception() is None:
            await asyncio.to_thread(_destroy, group.result())


class RemoteWeightSender:
    """That actor, as a :class:`~actors.engines.weights.broadcast_loader.Sender`."""

    def __init__(self, remote: Remote[WeightSender]) -> None:
        self._remote = remote

    async def list_buckets(self, manifest: WeightManifest) -> Sequence[TensorBucketSpec]:
        return await self._remote.call(WeightSender.list_buckets, manifest)

    async def open_group(self, name: str, ranks: int) -> Rendezvous:
        return await self._remote.call(WeightSender.open_group, name, ranks)

    async def broadcast_bucket(self, name: str, piece: TensorBucketSpec) -> None:
        await self._remote.call(WeightSender.broadcast_bucket, name, piece)

    async def close_group(self, name: str) -> None:
        await self._remote.call(WeightSender.close_group, name)


def _join(place: Rendezvous) -> Any:
    """The process group, when all have come.  Raises OSError, RuntimeError."""
    restrict_tcp_stores_to_address()
    join: Any = importlib.import_module("sglang.srt.utils.common").init_custom_process_group
    return join(
        backend=place.backend,
        init_method=f"tcp://{place.address}:{place.port}",
        world_size=place.world,
        rank=0,
        group_name=place.name,
        timeout=timedelta(seconds=_PATIENCE_S),
    )


def _destroy(group: Any) -> None:
    """Close its connections: a server that waits for a piece gets an error."""
    untyped: Any = importlib.import_module("torch.distributed")
    untyped.destroy_process_group(group)


def _broadcast(group: Any, piece: TensorBucketSpec, device: str) -> None:
    """Raises OSError, RuntimeError."""
    import torch

    flat = read_bucket(piece, pinned=device == "cuda").flat.to(device)
    untyped: Any = torch.distributed
    untyped.broadcast(flat.view(torch.uint8), src=0, group=group)
    if device == "cuda":
        torch.cuda.synchronize()
