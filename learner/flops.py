"""How much arithmetic a step is, and what share of the machine's it was.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from learner.qwen import QwenConfig

_DENSE_BF16 = {
    "H200": 989.4e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989.4e12,
    "H800": 989.4e12,
    "B200": 2250e12,
    "A100": 312e12,
}
"""Without sparsity, per second, by what is in the name of the device; the vendor's data sheets."""


def step_flops(config: QwenConfig, lengths: Iterable[int], predicted: int) -> float:
    """Of forward and backward over sequences of these lengths, ``predicted`` tokens of which have loss::

        6 · N_layers · T + 6 · N_head · predicted + 6 · L · h · Σ length²

    ``N`` counts the weights of matrix products (of a layer's, and of the output layer, tied or not, which only
    predicting rows are multiplied with), ``T`` all tokens, ``h`` heads · head size.  Of attention the causal half is
    counted; what is computed again for want of memory is not."""
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = config.hidden_size * (2 * q + 2 * kv) + 3 * config.hidden_size * config.intermediate_size
    head = config.hidden_size * config.vocab_size
    found = list(lengths)
    tokens, squares = sum(found), sum(length * length for length in found)
    layers = config.num_hidden_layers
    return 6.0 * (layers * layer * tokens + head * predicted + layers * q * squares)


def peak_flops(device: str) -> float | None:
    """Dense bfloat16 operations per second of the device of this name; None for one that is not known."""
    return next((peak for name, peak in _DENSE_BF16.items() if name in device), None)
