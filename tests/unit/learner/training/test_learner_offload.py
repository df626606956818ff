"""Offloaded tensors come back unchanged."""

import pytest
import torch

from learner.training.offload import HostOffload


def test_values_and_views_survive():
    whole = torch.arange(10.0)
    view, other = whole[3:5], torch.ones(3, dtype=torch.bfloat16)
    offload = HostOffload()
    for _ in range(2):
        offload.offload([view, other, whole, torch.empty(0)])
        assert offload.is_offloaded
        assert whole.untyped_storage().nbytes() == other.untyped_storage().nbytes() == 0
        offload.reload()
        assert whole.tolist() == list(range(10))
        assert view.tolist() == [3, 4]
        assert other.tolist() == [1, 1, 1]
        view.add_(0)


def test_offloading_twice_is_an_error():
    offload, held = HostOffload(), torch.ones(2)
    offload.offload([held])
    with pytest.raises(RuntimeError, match="offloaded already"):
        offload.offload([held])
    offload.reload()
    offload.reload()
    assert held.tolist() == [1, 1]
