"""Floating-point operations of training, from the model's shape, and peak rates of devices.  Recomputation is not
counted."""

from __future__ import annotations

from typing import NamedTuple

from learner.models.qwen import QwenConfig

_DENSE_BF16 = {
    "H200": 989.4e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989.4e12,
    "H800": 989.4e12,
    "B200": 2250e12,
    "A100": 312e12,
}
"""Dense operations per second by a part of the device's name; from the vendor's data sheets."""


class TrainingFlops(NamedTuple):
    """Floating-point operations of training."""

    per_token: float
    """Operations per token in the layers' matrices: 6 × their weights, 4 × if these are frozen."""
    per_target: float
    """Operations per token with loss in the output layer."""
    per_token_pair: float
    """Operations per squared length in attention; the causal half."""

    def count_sequence(self, tokens: int, targets: int) -> float:
        """Return the operations for one sequence."""
        return self.per_token * tokens + self.per_target * targets + self.per_token_pair * tokens * tokens


def count_training_flops(config: QwenConfig, *, frozen: bool = False) -> TrainingFlops:
    """Return 6·N_matmul·T + 6·L·h_attn·T² for a sequence of T tokens (PaLM, arXiv 2204.02311, appendix B, with half of
    its attention term because of the causal mask).  A third each is the forward pass, the gradient of the inputs, and
    that of the weights, which ``frozen`` weights do not need.  Adapters are not counted."""
    layers, weight = config.num_hidden_layers, 4.0 if frozen else 6.0
    return TrainingFlops(
        per_token=weight * layers * config.matmul_parameters_per_layer,
        per_target=weight * config.vocab_size * config.hidden_size,
        per_token_pair=6.0 * layers * config.query_size,
    )


def device_peak_flops(device: str) -> float | None:
    """Return the dense bfloat16 operations per second of a device by its name; None if it is unknown."""
    return next((peak for name, peak in _DENSE_BF16.items() if name in device), None)
