"""Loads weights through memory of this machine, by SGLang's ``update_weights_from_tensor``.

The files are read while the server decodes.  On a CPU the tensors wait in shared memory, from which the server copies
them.  On CUDA they wait in pinned memory; during the pause each bucket is copied to the server's devices and passed by
CUDA IPC, so that a device holds one bucket more than its weights.

The message is a pickle, which the server opens: its port is on loopback, and only this engine has its API key.
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
from actors.engines.weights.loader import StagedWeights, WeightLoader
from actors.engines.weights.tensor_buckets import TensorBucket, plan_buckets, read_bucket
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import WeightManifest

if TYPE_CHECKING:
    import torch


class TensorWeightLoader(WeightLoader):
    """Passes tensors to a server with this many ranks, one for each device."""

    def __init__(self, device: Literal["cpu", "cuda"], ranks: int) -> None:
        self._on_cuda, self._ranks = device == "cuda", ranks

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedWeights:
        """Raises InvalidWeights, and WeightLoadError if this machine has no shared memory left."""
        await asyncio.to_thread(weight_files.check_weights, manifest, model)
        try:
            buckets = await asyncio.to_thread(self._read, Path(manifest.path))
        except (OSError, RuntimeError) as error:  # torch raises the latter for a full /dev/shm
            raise WeightLoadError(
                f"{manifest.path} does not fit into memory together with the server ({error}): give /dev/shm more room "
                "(`mount -o remount,size=…`, `docker run --shm-size`), or set engine.load_weights_from = 'disk'"
            ) from error

        async def load(client: SGLangClient) -> None:
            async with client.weight_update():
                for index, bucket in enumerate(buckets, 1):
                    # tensors have to stay on the device until the server has answered
                    ranks = await asyncio.to_thread(self.tensors_on_devices, bucket)
                    version = manifest.version if index == len(buckets) else None
                    await client.update_weights_from_tensors([pickle_tensors(tensors) for tensors in ranks], version)

        return StagedWeights(manifest, load)

    def _read(self, folder: Path) -> list[TensorBucket]:
        import torch

        # with the other strategy the server asks this process for a handle, is refused, and dies
        torch.multiprocessing.set_sharing_strategy("file_system")  # pyright: ignore[reportUnknownMemberType]  # untyped
        return [read_bucket(spec, shared=not self._on_cuda, pinned=self._on_cuda) for spec in plan_buckets(folder)]

    def tensors_on_devices(self, bucket: TensorBucket) -> list[list[tuple[str, torch.Tensor]]]:
        """Return names and tensors for each of the server's ranks."""
        import torch

        if not self._on_cuda:
            return [bucket.tensors(torch.device("cpu"))] * self._ranks
        ranks = [bucket.tensors(torch.device("cuda", rank)) for rank in range(self._ranks)]
        for rank in range(self._ranks):
            torch.cuda.synchronize(rank)
        return ranks


def pickle_tensors(tensors: Sequence[tuple[str, torch.Tensor]]) -> str:
    """Pickle names and memory handles of tensors, as base64."""
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(list(tensors))
    return base64.b64encode(buffer.getvalue()).decode()
