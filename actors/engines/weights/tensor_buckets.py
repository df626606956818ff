"""A folder's tensors in buckets of bounded size, each of which is read or sent at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.engines.messages import TensorBucketSpec

if TYPE_CHECKING:
    import torch

BUCKET_BYTES = 512 << 20
"""Most bytes of a bucket with several tensors."""


@dataclass(frozen=True, slots=True)
class TensorBucket:
    """A bucket in memory: its tensors, one directly behind the other."""

    spec: TensorBucketSpec
    flat: torch.Tensor
    """Shape [numbers], of the bucket's type."""

    def tensors(self, device: torch.device) -> list[tuple[str, torch.Tensor]]:
        """Return names and tensors as views of one allocation, which is a copy if ``device`` is another one."""
        import torch

        flat = self.flat.to(device)
        parts = torch.split(flat, [torch.Size(shape).numel() for shape in self.spec.shapes])
        named = zip(self.spec.names, parts, self.spec.shapes, strict=True)
        return [(name, part.view(shape)) for name, part, shape in named]


def plan_buckets(folder: Path, bucket_bytes: int = BUCKET_BYTES) -> list[TensorBucketSpec]:
    """Divide a folder's tensors into buckets; a tensor larger than ``bucket_bytes`` has its own.  Raises OSError, and
    safetensors' own error."""
    found = list[TensorBucketSpec]()
    for path in sorted(folder.glob("*.safetensors")):
        names, shapes, room, dtype = list[str](), list[tuple[int, ...]](), 0, ""
        with _open(path) as file:
            for name in file.keys():  # noqa: SIM118  not a mapping
                tensor: torch.Tensor = file.get_tensor(name)  # a view of the mapped file
                if not names or tensor.nbytes > room or str(tensor.dtype) != dtype:
                    names, shapes = list[str](), list[tuple[int, ...]]()
                    room, dtype = bucket_bytes, str(tensor.dtype)
                    found.append(TensorBucketSpec(path, dtype.removeprefix("torch."), names, shapes))
                names.append(name)
                shapes.append(tuple(tensor.shape))
                room -= tensor.nbytes
    return found


def read_bucket(spec: TensorBucketSpec, *, shared: bool = False, pinned: bool = False) -> TensorBucket:
    """Read a bucket into shared memory, or into pinned memory that a GPU can copy from by itself.  Raises OSError, and
    RuntimeError if there is no room."""
    import torch

    numbers = sum(torch.Size(shape).numel() for shape in spec.shapes)
    flat = torch.empty(numbers, dtype=getattr(torch, spec.dtype), pin_memory=pinned)
    if shared:
        flat.share_memory_()
    bucket = TensorBucket(spec, flat)
    with _open(spec.file) as file:
        for name, tensor in bucket.tensors(flat.device):
            tensor.copy_(file.get_tensor(name))
    return bucket


def _open(path: Path) -> Any:
    from safetensors import safe_open

    untyped: Any = safe_open
    return untyped(os.fspath(path), framework="pt")
