"""Arithmetic of one forward and backward pass, from the model's shape.  Recomputation is not counted."""

from __future__ import annotations

from typing import NamedTuple

from learner.qwen import QwenConfig


class Flops(NamedTuple):
    """Floating-point operations of training, of which two thirds are the backward pass's."""

    token: float
    """Of each token, in the layers' matrices: 6 × their weights."""
    target: float
    """Of each token with loss, in the output layer."""
    pair: float
    """Of a sequence's length squared, in attention; the causal half."""

    def of(self, tokens: int, targets: int) -> float:
        """Of one sequence."""
        return self.token * tokens + self.target * targets + self.pair * tokens * tokens


def flops(config: QwenConfig) -> Flops:
    """6·N_matmul·T + 6·L·h_attn·T² for a sequence of T tokens (PaLM, arXiv 2204.02311, appendix B, with half of its
    attention term because a causal mask needs no more)."""
    layers = config.num_hidden_layers
    return Flops(
        token=6.0 * layers * config.layer_matrices,
        target=6.0 * config.vocab_size * config.hidden_size,
        pair=6.0 * layers * config.query_size,
    )
