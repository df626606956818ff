"""Device memory that is given back while nobody uses it: its bytes wait on the host."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from learner.tensors import storage_bytes


class HostOffload:
    """Tensors that can be parked: their memory is freed and their values wait in host memory, pinned where there is a
    device.  The tensors themselves, and views of them, stay the same objects; they must not be touched while parked.

    On a CPU the values are copied all the same: what is saved is nothing, what is tested is the copying."""

    def __init__(self) -> None:
        self._parked: list[tuple[Tensor, Tensor]] = []
        self._host: dict[tuple[int, int], Tensor] = {}
        """Host memory by order and size, kept: pinning it is slow."""

    @property
    def is_offloaded(self) -> bool:
        return bool(self._parked)

    def offload(self, tensors: Iterable[Tensor]) -> None:
        """Free the memory behind ``tensors``, each once however many of them share it."""
        if self._parked:
            raise RuntimeError("parked already")
        seen: set[int] = set()
        for tensor in tensors:
            whole = _whole(tensor)
            if whole.numel() and whole.data_ptr() not in seen:
                seen.add(whole.data_ptr())
                waiting = self._waiting(len(self._parked), whole)
                waiting.copy_(whole, non_blocking=True)
                self._parked.append((whole, waiting))
        _finish()
        for whole, _ in self._parked:
            whole.untyped_storage().resize_(0)

    def reload(self) -> None:
        """Bring everything back; nothing where nothing is parked."""
        for whole, waiting in self._parked:
            whole.untyped_storage().resize_(waiting.nbytes)
            whole.copy_(waiting, non_blocking=True)
        _finish()
        self._parked.clear()

    def _waiting(self, index: int, whole: Tensor) -> Tensor:
        key = (index, whole.nbytes)
        if key not in self._host:
            self._host[key] = torch.empty(whole.shape, dtype=torch.uint8, pin_memory=whole.is_cuda)
        return self._host[key]


def release_cached_memory() -> None:
    """Let other processes have what torch's allocator keeps for this one and nobody uses."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _whole(tensor: Tensor) -> Tensor:
    """All bytes of the memory that ``tensor`` is in."""
    return storage_bytes(tensor.untyped_storage(), tensor.device)


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
