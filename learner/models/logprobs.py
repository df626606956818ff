"""Log-probability and entropy of chosen tokens from a vocabulary that is sharded over tensor-parallel ranks.

Shapes: ``N`` tokens, hidden size ``H``, this rank's ``V`` rows of the output table.  Only a chunk of the float32 matrix
[N, V] exists at a time, twice while its entropy or gradient is computed.  If one chunk holds all tokens, its
probabilities are kept for the backward pass; otherwise each chunk's logits are recomputed there.
"""
# pyright: reportUnknownMemberType=false, reportIncompatibleMethodOverride=false, reportUntypedFunctionDecorator=false
# (torch types neither autograd.Function.apply nor ctx; forward and backward are meant to be overridden freely)
# ruff: noqa: N803 - shape suffixes

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from learner.tensors import accumulation_dtype, all_reduce, all_reduce_max, at_least_float32

ROWS = 16384


class TokenLogprobs(NamedTuple):
    logprobs: Tensor
    """float32 [N], or float64 for float64 inputs; with gradient."""
    entropy: Tensor
    """[N] of the same type, without gradient; zeros if not requested."""


class _Chunk(NamedTuple):
    logprobs: Tensor
    entropy: Tensor | None
    probabilities: Tensor
    local: Tensor
    """Column of the label on this rank, clamped into range."""
    mine: Tensor
    """bool: true if the label's column is on this rank."""


def _softmax(logits: Tensor, labels: Tensor, first: int, group: dist.ProcessGroup | None, entropy: bool) -> _Chunk:
    """Compute a chunk's results; overwrites ``logits`` [C, V].  ``first`` is the vocabulary index of column 0."""
    local = (labels - first).clamp(0, logits.shape[1] - 1)
    mine = (labels >= first) & (labels < first + logits.shape[1])
    largest = logits.amax(-1)
    if group is not None:
        all_reduce_max(largest, group)
    logits.sub_(largest[:, None])
    target = logits.gather(1, local[:, None])[:, 0].masked_fill(~mine, 0.0)
    if entropy:
        powers = logits.exp()
        sums = [powers.sum(-1), target, torch.bmm(powers[:, None], logits[:, :, None])[:, 0, 0]]
    else:
        powers = logits.exp_()
        sums = [powers.sum(-1), target]
    total = torch.stack(sums)
    if group is not None:
        all_reduce(total, group)
    log_z = total[0].log()
    return _Chunk(
        total[1] - log_z, log_z - total[2] / total[0] if entropy else None, powers.div_(total[0][:, None]), local, mine
    )


def _logits(hidden: Tensor, weight: Tensor, inverse_temperature: float) -> Tensor:
    logits = at_least_float32(hidden @ weight.t())
    return logits if inverse_temperature == 1.0 else logits.mul_(inverse_temperature)


def _grad_logits(chunk: _Chunk, grad: Tensor, inverse_temperature: float) -> Tensor:
    """Return the gradient of the logits: d log p ÷ d logits = 1[label] − p."""
    grad = grad * inverse_temperature
    out = chunk.probabilities * -grad[:, None]
    return out.scatter_add_(1, chunk.local[:, None], (grad * chunk.mine)[:, None])


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        first: int,
        group: dist.ProcessGroup | None,
        chunk_tokens: int,
        inverse_temperature: float,
        entropy: bool,
        weight_grad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, labels)
        ctx.weight_grad = weight_grad
        ctx.arguments = first, group, chunk_tokens, inverse_temperature
        ctx.kept = None
        logprobs = hidden.new_empty(len(labels), dtype=accumulation_dtype(hidden.dtype))
        entropies = torch.zeros_like(logprobs)
        for at in range(0, len(labels), chunk_tokens):
            part = slice(at, at + chunk_tokens)
            chunk = _softmax(_logits(hidden[part], weight, inverse_temperature), labels[part], first, group, entropy)
            logprobs[part] = chunk.logprobs
            if chunk.entropy is not None:
                entropies[part] = chunk.entropy
            if len(labels) <= chunk_tokens:
                ctx.kept = chunk
            del chunk  # else it would exist together with the next
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensors
        first, group, chunk_tokens, inverse_temperature = ctx.arguments
        grad_hidden = torch.empty_like(hidden)
        grad_weight: Tensor | None = None
        if ctx.needs_input_grad[1]:
            own: Tensor | None = ctx.weight_grad
            grad_weight = torch.zeros_like(weight, dtype=accumulation_dtype(weight.dtype)) if own is None else own
        for at in range(0, len(labels), chunk_tokens):
            part = slice(at, at + chunk_tokens)
            chunk = ctx.kept or _softmax(
                _logits(hidden[part], weight, inverse_temperature), labels[part], first, group, entropy=False
            )
            grad_logits = _grad_logits(chunk, grad[part], inverse_temperature).to(weight.dtype)
            torch.mm(grad_logits, weight, out=grad_hidden[part])
            if grad_weight is not None:
                _add_product(grad_weight, grad_logits, hidden[part])
            del chunk, grad_logits
        found = None if grad_weight is None or ctx.weight_grad is not None else grad_weight.to(weight.dtype)
        return grad_hidden, found, *[None] * 7


def _add_product(total_VH: Tensor, grad_CV: Tensor, hidden_CH: Tensor) -> None:
    """Add gradᵀ · hidden; if the total has a wider type, in blocks of rows, to keep the product small."""
    if total_VH.dtype == hidden_CH.dtype:
        total_VH.addmm_(grad_CV.t(), hidden_CH)
        return
    for at in range(0, len(total_VH), ROWS):
        rows = slice(at, at + ROWS)
        total_VH[rows].add_(grad_CV[:, rows].t() @ hidden_CH)


def token_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    labels_N: Tensor,
    *,
    first: int = 0,
    group: dist.ProcessGroup | None = None,
    chunk_bytes: int = 256 << 20,
    temperature: float = 1.0,
    entropy: bool = False,
    weight_grad_VH: Tensor | None = None,
) -> TokenLogprobs:
    """Return log softmax(hidden · weightᵀ ÷ temperature)[label] and, if requested, the entropy of that distribution.

    ``first`` is the vocabulary index of this rank's first row; ``group`` the ranks that share the vocabulary, None for
    one.  The gradient of ``hidden_NH`` is this rank's part, which the caller sums over ``group``.  That of
    ``weight_VH`` is added to ``weight_grad_VH``, megatron's buffer, if given; then autograd gets none."""
    chunk_tokens = max(1, chunk_bytes // (4 * max(1, weight_VH.shape[0])))
    logprobs, entropies = cast(
        "tuple[Tensor, Tensor]",
        _TokenLogprobs.apply(
            *(hidden_NH, weight_VH, labels_N, first, group, chunk_tokens, 1.0 / temperature, entropy, weight_grad_VH)
        ),
    )
    return TokenLogprobs(logprobs, entropies)
