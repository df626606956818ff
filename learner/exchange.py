"""What context-parallel ranks hand each other: keys and values on the way in, log-probabilities on the way out."""
# pyright: reportUnknownMemberType=false, reportIncompatibleMethodOverride=false, reportUntypedFunctionDecorator=false
# (torch types neither autograd.Function.apply nor ctx; forward and backward are meant to be overridden freely)

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor
from torch.autograd.function import once_differentiable

from learner.tensors import all_gather_rows, reduce_scatter_rows


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any, own: Tensor, places: Tensor, width: int, group: dist.ProcessGroup, summed: bool
    ) -> Tensor:
        ctx.save_for_backward(places)
        ctx.arguments = len(own), width, group, summed
        filled = F.pad(own.flatten(1), (0, 0, 0, width - len(own)))
        whole = filled.new_empty(group.size() * width, filled.shape[1])
        all_gather_rows(whole, filled, group)
        return whole.index_select(0, places).view(len(places), *own.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        count, width, group, summed = ctx.arguments
        flat = grad.flatten(1)
        whole = flat.new_zeros(group.size() * width, flat.shape[1]).index_copy_(0, places, flat)
        own = whole[group.rank() * width :][:width]
        if summed:
            own = torch.empty_like(own)
            reduce_scatter_rows(own, whole, group)
        return own[:count].view(count, *grad.shape[1:]), None, None, None, None


def gather(own: Tensor, places_M: Tensor, width: int, group: dist.ProcessGroup, *, summed: bool) -> Tensor:  # noqa: N803 - shape suffix
    """[M, ...]: rows of all ranks, of which this one has ``own`` [≤ width, ...]; row m stands at ``places_M[m]`` among
    the ranks' rows, one rank's ``width`` rows after the other's.

    The gradient of ``own`` is its slice of the result's: of this rank's alone, where every rank goes on to compute the
    same loss from the result, or ``summed`` over the ranks, where each computes something else."""
    return cast("Tensor", _Gather.apply(own, places_M, width, group, summed))
