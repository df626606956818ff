"""Operations whose stock versions are slowest on a CPU, with hand-written gradients.

Each saves passes over memory, not arithmetic: no concatenation, and as few temporaries of the input's size as possible.
Tested against the plain formula and its autograd gradient.
"""
# pyright: reportUnknownMemberType=false, reportIncompatibleMethodOverride=false, reportUntypedFunctionDecorator=false
# (torch types neither autograd.Function.apply nor ctx; forward and backward are meant to be overridden freely)

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from learner.tensors import at_least_float32


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(grad, cos, sin, -1), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    half = x.shape[-1] // 2
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    low, high, cos, sin = x[..., :half], x[..., half:], cos.to(x.dtype), sin.to(x.dtype)
    torch.mul(low, cos, out=out[..., :half]).addcmul_(high, sin, value=-sign)
    torch.mul(high, cos, out=out[..., half:]).addcmul_(low, sin, value=sign)
    return out


def apply_rotary(x_TND: Tensor, cos_T1H: Tensor, sin_T1H: Tensor) -> Tensor:  # noqa: N803 - shape suffix
    """Apply the rotary embedding in halves (Hugging Face's ``rotate_half``).  ``H`` is half of ``D``."""
    return cast("Tensor", _Rotate.apply(x_TND, cos_T1H, sin_T1H))


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = at_least_float32(x)
        norm = cast("Tensor", torch.linalg.vector_norm(wide, dim=-1, keepdim=True))
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        dtype = weight.dtype
        normed, wide, weight = at_least_float32(x) * scale, at_least_float32(grad), at_least_float32(weight)
        product = wide * normed
        width = x.shape[-1]
        grad_weight = product.view(-1, width).sum(0).to(dtype) if ctx.needs_input_grad[1] else None
        inner = torch.matmul(product, weight.unsqueeze(-1)).div_(-width)
        grad_x = (wide * weight).addcmul_(normed, inner).mul_(scale)
        return grad_x.to(x.dtype), grad_weight, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x ÷ √(mean(x²) + eps) · weight over the last dimension, computed in float32 or float64."""
    return cast("Tensor", _RmsNorm.apply(x, weight, eps))


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.length = x.shape[0]
        return x.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return grad.new_zeros((ctx.length, *grad.shape[1:])).index_copy_(0, rows, grad), None


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return x[rows] for distinct rows, so that the gradient is a copy, not a sum."""
    return cast("Tensor", _TakeRows.apply(x, rows))


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, targets: Tensor) -> Tensor:
        ctx.save_for_backward(targets)
        return x.index_select(0, source)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (targets,) = ctx.saved_tensors
        return grad.index_select(0, targets), None, None


def pad_rows(x: Tensor, source: Tensor, targets: Tensor) -> Tensor:
    """Return x[source], in which row ``i`` of x is at ``targets[i]`` and all other rows are padding without
    gradient."""
    return cast("Tensor", _Pad.apply(x, source, targets))
