"""The frozen weights that a KL penalty is taken to: beside the device, and in the model only while they are asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor


class Reference:
    """Copies of this rank's parameters, in host memory (pinned where the model is on CUDA)."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Freezes the weights that ``model`` has."""
        self._model = model
        self._kept = [_on_host(parameter) for parameter in model.parameters()]

    @contextmanager
    def in_place(self) -> Generator[None]:
        """The model has the reference's weights; then its own again, bit for bit, whatever happens."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        """A tensor at a time, so that the device never holds two models."""
        for parameter, kept in zip(self._model.parameters(), self._kept, strict=True):
            own = parameter.detach().clone()
            parameter.copy_(kept)
            kept.copy_(own)


def _on_host(parameter: Tensor) -> Tensor:
    copy = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu", pin_memory=parameter.is_cuda)
    return copy.copy_(parameter.detach())
