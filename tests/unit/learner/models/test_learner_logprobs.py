"""Chunked log-probabilities against torch.log_softmax, values and gradients."""

import pytest
import torch

import learner.models.logprobs
from learner.models.logprobs import token_logprobs

N, H, V = 23, 8, 31


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(N, H, generator=generator), torch.randn(V, H, generator=generator)
    labels, upstream = torch.randint(0, V, (N,), generator=generator), torch.randn(N, generator=generator)
    return hidden, weight, labels, upstream


def plain(hidden, weight, labels, temperature):
    logs = torch.log_softmax(hidden @ weight.t() / temperature, -1)
    return logs.gather(1, labels[:, None])[:, 0], -(logs.exp() * logs).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk_tokens", [1, 5, 23, 100], ids=lambda n: f"{n} tokens a chunk")
def test_values_and_gradients(inputs, temperature, chunk_tokens):
    """Whether logits are kept or computed again, the gradient is the same."""
    hidden, weight, labels, upstream = inputs
    h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    logprobs, entropy = plain(h, w, labels, temperature)
    (logprobs * upstream).sum().backward()
    h2, w2 = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    found = token_logprobs(h2, w2, labels, chunk_bytes=4 * V * chunk_tokens, temperature=temperature, entropy=True)
    (found.logprobs * upstream).sum().backward()
    torch.testing.assert_close(found.logprobs, logprobs)
    torch.testing.assert_close(found.entropy, entropy)
    torch.testing.assert_close(h2.grad, h.grad)
    torch.testing.assert_close(w2.grad, w.grad)
    assert not found.entropy.requires_grad


def test_a_frozen_output_layer_gets_no_gradient(inputs):
    """Under LoRA; that of the hidden states is the same."""
    hidden, weight, labels, upstream = inputs
    found = []
    for trained in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trained)
        (token_logprobs(h, w, labels, chunk_bytes=4 * V * 5).logprobs * upstream).sum().backward()
        found.append((h.grad, w.grad))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=0)
    assert found[1][1] is None


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_the_weight_gradient_is_added_to_the_given_buffer(inputs, monkeypatch, dtype, atol):
    monkeypatch.setattr(learner.models.logprobs, "ROWS", 7)
    *given, labels, upstream = inputs
    buffer = torch.ones(V, H)
    h, w, h2, w2 = (tensor.to(dtype).clone().requires_grad_() for tensor in (*given, *given))
    plainly = token_logprobs(h, w, labels, chunk_bytes=4 * V * 5)
    (plainly.logprobs * upstream).sum().backward()
    found = token_logprobs(h2, w2, labels, chunk_bytes=4 * V * 5, weight_grad_VH=buffer)
    (found.logprobs * upstream).sum().backward()
    torch.testing.assert_close(h2.grad, h.grad, rtol=0, atol=0)
    torch.testing.assert_close(buffer - 1, w.grad.float(), rtol=1e-2, atol=atol)
    assert w2.grad is None


def test_entropy_is_only_made_when_asked_for(inputs):
    hidden, weight, labels, _ = inputs
    assert token_logprobs(hidden, weight, labels).entropy.tolist() == [0.0] * N


def test_large_logits_do_not_overflow(inputs):
    hidden, weight, labels, _ = inputs
    found = token_logprobs(hidden * 1e3, weight, labels, entropy=True)
    assert torch.isfinite(found.logprobs).all()
    assert torch.isfinite(found.entropy).all()


def test_bfloat16_weights_give_float32_logprobs(inputs):
    hidden, weight, labels, upstream = inputs
    h, w = hidden.bfloat16().requires_grad_(), weight.bfloat16().requires_grad_()
    found = token_logprobs(h, w, labels, chunk_bytes=4 * V * 5)
    (found.logprobs * upstream).sum().backward()
    expected, _ = plain(hidden.bfloat16().float(), weight.bfloat16().float(), labels, 1.0)
    assert found.logprobs.dtype == torch.float32
    torch.testing.assert_close(found.logprobs, expected, rtol=2e-2, atol=5e-2)
    assert h.grad.dtype == w.grad.dtype == torch.bfloat16


def test_a_micro_batch_without_loss_tokens_has_zero_gradients(inputs):
    """A micro-batch without loss still takes part in the step."""
    hidden, weight, labels, _ = inputs
    h, w = hidden[:0].requires_grad_(), weight.clone().requires_grad_()
    token_logprobs(h, w, labels[:0]).logprobs.sum().backward()
    assert h.grad.shape == (0, H)
    assert not w.grad.any()
