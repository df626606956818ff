"""Weights by ``update_weights_from_tensor``: the server is told where in this machine's memory they are.

They are read while the server decodes.  On a CPU they wait in memory that processes share, and the server copies them
from there; on CUDA they wait in pinned memory, and each bucket is put on the server's devices in the pause and handed
over by CUDA IPC, so that a device holds one bucket more than its weights.

What is sent is a pickle, which the server opens: its port is on loopback, and its key is this engine's alone.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from actors.engines.messages import WeightLoadError
from actors.engines.server.client import SGLangClient
from actors.engines.weights import weight_files
from actors.engines.weights.loader import StagedLoad
from actors.engines.weights.tensor_buckets import TensorBucket, plan_buckets, read_bucket
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest

if TYPE_CHECKING:
    import torch


class TensorWeightLoader:
    """``ranks`` are the server's, one for each device."""

    def __init__(self, device: Literal["cpu", "cuda"], ranks: int) -> None:
        self._on_cuda, self._ranks = device == "cuda", ranks

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        """Raises BadWeights, and LoadError where this machine has no shared memory left."""
        await asyncio.to_thread(weight_files.check_weights, manifest, model)
        try:
            buckets = await asyncio.to_thread(self._read, Path(manifest.path))
        except (OSError, RuntimeError) as error:  # torch's for a full /dev/shm
            raise WeightLoadError(
                f"{manifest.path} does not fit into memory beside the server ({error}): give /dev/shm more room "
                "(`mount -o remount,size=…`, `docker run --shm-size`), or set engine.handover = 'files'"
            ) from error

        async def load(client: SGLangClient) -> None:
            async with client.weight_update():
                for index, bucket in enumerate(buckets, 1):
                    # what is on a device has to stay there until the server says that it has taken it
                    ranks = await asyncio.to_thread(self._on_devices, bucket)
                    version = manifest.version if index == len(buckets) else None
                    await client.update_weights_from_tensors([pickle_tensors(tensors) for tensors in ranks], version)

        return load

    def _read(self, folder: Path) -> list[TensorBucket]:
        import torch

        # by the other strategy the server asks this process for a handle, is refused, and dies
        torch.multiprocessing.set_sharing_strategy("file_system")  # pyright: ignore[reportUnknownMemberType]  # untyped
        return [read_bucket(piece, shared=not self._on_cuda, pinned=self._on_cuda) for piece in plan_buckets(folder)]

    def _on_devices(self, bucket: TensorBucket) -> list[list[tuple[str, torch.Tensor]]]:
        """For each of the server's ranks."""
        import torch

        if not self._on_cuda:
            return [bucket.tensors(torch.device("cpu"))] * self._ranks
        ranks = [bucket.tensors(torch.device("cuda", rank)) for rank in range(self._ranks)]
        for rank in range(self._ranks):
            torch.cuda.synchronize(rank)
        return ranks


def pickle_tensors(tensors: Sequence[tuple[str, torch.Tensor]]) -> str:
    """Names and where the tensors are, in base64."""
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(list(tensors))
    return base64.b64encode(buffer.getvalue()).decode()
