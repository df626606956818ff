"""The frozen reference of a KL penalty: a copy in host memory, swapped into the model while used, or, with adapters,
the base model."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:  # it loads megatron
    from learner.models.adapters import LoraAdapter


class ReferencePolicy(Protocol):
    """The reference of a KL penalty."""

    def activated(self) -> AbstractContextManager[None]:
        """Make the model compute the reference during the block, and afterwards restore it bit for bit."""
        ...


class CopiedReference:
    """Copies of this rank's parameters, in host memory (pinned where the model is on CUDA)."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Copy the current weights of ``model``."""
        self._model = model
        self._kept = [_on_host(parameter) for parameter in model.parameters()]

    @contextmanager
    def activated(self) -> Generator[None]:
        """See :class:`ReferencePolicy`."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """Swap one tensor at a time, so that the device never holds two models."""
        for parameter, kept in zip(self._model.parameters(), self._kept, strict=True):
            own = parameter.detach().clone()
            parameter.copy_(kept)
            kept.copy_(own)


class BaseModelReference:
    """The base model of adapters; nothing is copied."""

    def __init__(self, adapters: Iterable[LoraAdapter]) -> None:
        self._adapters = tuple(adapters)

    @contextmanager
    def activated(self) -> Generator[None]:
        """See :class:`ReferencePolicy`."""
        self._switch(active=False)
        try:
            yield
        finally:
            self._switch(active=True)

    def _switch(self, *, active: bool) -> None:
        for adapter in self._adapters:
            adapter.active = active


def _on_host(parameter: Tensor) -> Tensor:
    copy = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu", pin_memory=parameter.is_cuda)
    return copy.copy_(parameter.detach())
