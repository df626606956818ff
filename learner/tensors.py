"""Typed wrappers of torch functions whose own signatures are partly untyped."""
# pyright: reportUnknownMemberType=false
# (that is what this file is for)

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of sums over values of ``dtype``: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(accumulation_dtype(tensor.dtype))


def storage_bytes(storage: torch.UntypedStorage, device: torch.device) -> Tensor:
    """Return a uint8 view of the storage's memory."""
    found = torch.empty(0, dtype=torch.uint8, device=device)
    share: Callable[..., Tensor] = found.set_  # its own types leave storages out
    return share(storage, 0, (storage.nbytes(),))


def split_rows(tensor: Tensor, lengths: Sequence[int]) -> tuple[Tensor, ...]:
    """Return consecutive views of ``lengths`` rows."""
    return cast("tuple[Tensor, ...]", tensor.split(list(lengths)))


def from_numpy(array: NDArray[Any]) -> Tensor:
    """Return ``array`` as a tensor over the same memory."""
    return torch.from_numpy(array)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return ``tensor`` as an array in host memory."""
    return tensor.cpu().numpy()


def floats(values_N: Tensor) -> list[float]:  # noqa: N803  shape suffix
    """Return a vector's values."""
    return cast("list[float]", values_N.tolist())


def vector_norm(tensor: Tensor) -> Tensor:
    """Return √Σx², a scalar."""
    return cast("Tensor", torch.linalg.vector_norm(tensor))


def labels_to_indices(labels_M: Tensor) -> Tensor:  # noqa: N803  shape suffix
    """Return for each label its index among the sorted distinct ones."""
    return cast("Tensor", torch.unique(labels_M, return_inverse=True)[1])


def all_reduce(tensor: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Sum over ``group`` (None: all ranks), in place."""
    dist.all_reduce(tensor, group=group)


def all_reduce_max(tensor: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Take the maximum over ``group`` (None: all ranks), in place."""
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)


def all_gather(parts: list[Tensor], own: Tensor, group: dist.ProcessGroup) -> None:
    """Gather each rank's ``own`` into every rank's ``parts``."""
    dist.all_gather(parts, own, group=group)


def all_gather_objects(own: T, group: dist.ProcessGroup) -> list[T]:
    """Return every rank's pickled ``own``, by rank, on all ranks."""
    found: list[T | None] = [None] * group.size()
    dist.all_gather_object(found, own, group=group)
    return cast("list[T]", found)


def new_gloo_group(timeout: timedelta) -> dist.ProcessGroup:
    """Return a new gloo group of all ranks."""
    return cast("dist.ProcessGroup", dist.new_group(backend="gloo", timeout=timeout))


def _collective(name: str, before: str) -> Callable[..., object]:
    """Return a function of torch.distributed, or its name before torch 2.13."""
    return getattr(dist, name, None) or getattr(dist, before)


_gather_into = _collective("all_gather_single", "all_gather_into_tensor")
_scatter_into = _collective("reduce_scatter_single", "reduce_scatter_tensor")


def all_gather_rows(whole: Tensor, own: Tensor, group: dist.ProcessGroup) -> None:
    """Gather each rank's ``own`` [W, ...] into every rank's ``whole`` [ranks · W, ...]."""
    _gather_into(whole, own, group=group)


def reduce_scatter_rows(own: Tensor, whole: Tensor, group: dist.ProcessGroup) -> None:
    """Sum the ranks' ``whole`` [ranks · W, ...] and give each rank its own W rows."""
    _scatter_into(own, whole, group=group)


def manual_seed(seed: int) -> None:
    """Seed torch's generators."""
    torch.manual_seed(seed)
