"""Offload of unused device memory to the host."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from learner.tensors import storage_bytes


class HostOffload:
    """Offloads tensors: their device memory is freed and their values are kept in host memory, pinned with CUDA.  The
    tensors and views of them stay the same objects and must not be used while offloaded.

    On a CPU the values are copied too, which saves nothing but tests the copying."""

    def __init__(self) -> None:
        self._offloaded: list[tuple[Tensor, Tensor]] = []
        self._host: dict[tuple[int, int], Tensor] = {}
        """Host buffers by order and size, which are reused because pinning is slow."""

    @property
    def is_offloaded(self) -> bool:
        return bool(self._offloaded)

    def offload(self, tensors: Iterable[Tensor]) -> None:
        """Free the memory of ``tensors``; memory that several of them share is copied once."""
        if self._offloaded:
            raise RuntimeError("the tensors are offloaded already")
        seen: set[int] = set()
        for tensor in tensors:
            whole = _whole(tensor)
            if whole.numel() and whole.data_ptr() not in seen:
                seen.add(whole.data_ptr())
                waiting = self._waiting(len(self._offloaded), whole)
                waiting.copy_(whole, non_blocking=True)
                self._offloaded.append((whole, waiting))
        _finish()
        for whole, _ in self._offloaded:
            whole.untyped_storage().resize_(0)

    def reload(self) -> None:
        """Copy everything back; do nothing if nothing is offloaded."""
        for whole, waiting in self._offloaded:
            whole.untyped_storage().resize_(waiting.nbytes)
            whole.copy_(waiting, non_blocking=True)
        _finish()
        self._offloaded.clear()

    def _waiting(self, index: int, whole: Tensor) -> Tensor:
        key = (index, whole.nbytes)
        if key not in self._host:
            self._host[key] = torch.empty(whole.shape, dtype=torch.uint8, pin_memory=whole.is_cuda)
        return self._host[key]


def release_cached_memory() -> None:
    """Release unused memory that torch's allocator caches."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _whole(tensor: Tensor) -> Tensor:
    """Return all bytes of the storage that ``tensor`` is in."""
    return storage_bytes(tensor.untyped_storage(), tensor.device)


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
