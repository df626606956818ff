"""Hand-written gradients against autograd's own."""

import pytest
import torch

from learner.models.kernels import apply_rotary, pad_rows, rms_norm, take_rows

T, HEADS, D = 7, 3, 8


def gradients(function, *tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = function(*leaves)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return out.detach(), torch.autograd.grad(out, leaves, upstream)


def same(ours, plain, *tensors):
    out, grads = gradients(ours, *tensors)
    expected, expected_grads = gradients(plain, *tensors)
    torch.testing.assert_close(out, expected)
    for found, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.fixture
def x():
    return torch.randn(T, HEADS, D, generator=torch.Generator().manual_seed(0))


def test_rms_norm_and_its_gradients_equal_the_plain_formula(x):
    weight = torch.linspace(0.5, 1.5, D)
    same(
        lambda x, w: rms_norm(x, w, 1e-6),
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        x,
        weight,
    )


def test_rms_norm_with_a_frozen_weight(x):
    """Under LoRA."""
    same(
        lambda x: rms_norm(x, torch.full((D,), 0.5), 1e-6),
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * 0.5,
        x,
    )


def test_rms_norm_of_a_view(x):
    """Queries are a slice of a wider matrix."""
    wide = torch.cat([x, x * 2], dim=-1)
    same(
        lambda w: rms_norm(w[..., :D], torch.ones(D), 1e-6),
        lambda w: torch.nn.functional.rms_norm(w[..., :D], (D,), None, 1e-6),
        wide,
    )


def test_rotary_embedding_and_its_gradient_equal_the_plain_formula(x):
    angles = torch.arange(T)[:, None].float() * torch.tensor([1.0, 0.1, 0.01, 0.001])
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def plain(x):
        both_cos, both_sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
        turned = torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1)
        return x * both_cos + turned * both_sin

    same(lambda x: apply_rotary(x, cos, sin), plain, x)


def test_taking_rows_and_its_gradient_equal_indexing(x):
    rows = torch.tensor([5, 0, 3])
    same(lambda x: take_rows(x, rows), lambda x: x[rows], x)


def test_pad_rows_drops_the_padding_gradient(x):
    """Lengths 4 and 3 padded to 4: the repeated row counts once."""
    source, place = torch.tensor([0, 1, 2, 3, 4, 5, 6, 6]), torch.arange(T)
    padded, (grad,) = gradients(lambda x: pad_rows(x, source, place), x)
    upstream = torch.randn(padded.shape, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(padded, x[source])
    torch.testing.assert_close(grad, upstream[:T])
