"""A folder's tensors in pieces of a bounded size: what is read, or sent, at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BUCKET_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class TensorBucketSpec:
    """Tensors of one type in one file."""

    file: Path
    dtype: str
    """By torch's name, such as ``bfloat16``."""
    names: Sequence[str]
    shapes: Sequence[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TensorBucket:
    """A piece in memory: its tensors, one right behind the other."""

    spec: TensorBucketSpec
    flat: torch.Tensor
    """[numbers], of the piece's type."""

    def tensors(self, device: torch.device) -> list[tuple[str, torch.Tensor]]:
        """Each by its name, as a view of one piece of memory; on another device that is a copy."""
        import torch

        flat = self.flat.to(device)
        parts = torch.split(flat, [torch.Size(shape).numel() for shape in self.spec.shapes])
        named = zip(self.spec.names, parts, self.spec.shapes, strict=True)
        return [(name, part.view(shape)) for name, part, shape in named]


def plan_buckets(folder: Path, bucket_bytes: int = BUCKET_BYTES) -> list[TensorBucketSpec]:
    """A tensor that is larger than ``bucket_bytes`` has a piece of its own.  Raises OSError, and safetensors' error."""
    found = list[TensorBucketSpec]()
    for path in sorted(folder.glob("*.safetensors")):
        names, shapes, room, dtype = list[str](), list[tuple[int, ...]](), 0, ""
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118  it is no mapping
                tensor: torch.Tensor = file.get_tensor(name)  # a view of the mapped file
                if not names or tensor.nbytes > room or str(tensor.dtype) != dtype:
                    names, shapes = list[str](), list[tuple[int, ...]]()
                    room, dtype = bucket_bytes, str(tensor.dtype)
                    found.append(TensorBucketSpec(path, dtype.removeprefix("torch."), names, shapes))
                names.append(name)
                shapes.append(tuple(tensor.shape))
                room -= tensor.nbytes
    return found


def read_bucket(piece: TensorBucketSpec, *, shared: bool = False, pinned: bool = False) -> TensorBucket:
    """In memory that other processes can open if ``shared``, or that a GPU can copy by itself if ``pinned``.  Raises
    OSError, and RuntimeError where there is no room."""
    import torch

    numbers = sum(torch.Size(shape).numel() for shape in piece.shapes)
    flat = torch.empty(numbers, dtype=getattr(torch, piece.dtype), pin_memory=pinned)
    if shared:
        flat.share_memory_()
    bucket = TensorBucket(piece, flat)
    with _opened(piece.file) as file:
        for name, tensor in bucket.tensors(flat.device):
            tensor.copy_(file.get_tensor(name))
    return bucket


def _opened(path: Path) -> Any:
    from safetensors import safe_open

    untyped: Any = safe_open
    return untyped(os.fspath(path), framework="pt")
