"""The share of the hardware that a step used is compared with published ones: it has to count what they count."""

import pytest

from learner.models.flops import count_training_flops, device_peak_flops
from learner.models.qwen import QWEN_FAMILIES, QwenConfig

CONFIG = QwenConfig(QWEN_FAMILIES["qwen3"], 1000, 64, 128, 3, 4, 2, 16, 1e-6, 1e4, 512, tie_word_embeddings=True)


def test_flops_equal_the_formula():
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128
    lengths = [10, 30]
    matmul = 3 * layer + 64 * 1000
    whole = sum(count_training_flops(CONFIG).count_sequence(length, length) for length in lengths)
    assert whole == 6 * matmul * 40 + 6 * 3 * 64 * (10**2 + 30**2)
    assert (
        sum(count_training_flops(CONFIG).count_sequence(length, 0) for length in lengths) == whole - 6 * 64 * 1000 * 40
    )


def test_frozen_weights_need_two_thirds_of_the_matrix_flops():
    whole, frozen = count_training_flops(CONFIG), count_training_flops(CONFIG, frozen=True)
    assert (frozen.per_token, frozen.per_target) == (whole.per_token * 2 / 3, whole.per_target * 2 / 3)
    assert frozen.per_token_pair == whole.per_token_pair


@pytest.mark.parametrize(
    ("device", "peak"),
    [("NVIDIA H100 80GB HBM3", 989.4e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA H200", 989.4e12), ("a CPU", None)],
)
def test_peak_flops_depend_on_the_device_model_and_are_unknown_for_a_cpu(device, peak):
    assert device_peak_flops(device) == peak
