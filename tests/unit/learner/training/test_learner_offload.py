"""Parked tensors come back as they were, to whoever holds them."""

import pytest
import torch

from learner.training.offload import HostOffload


def test_values_and_views_survive():
    whole = torch.arange(10.0)
    view, other = whole[3:5], torch.ones(3, dtype=torch.bfloat16)
    parking = HostOffload()
    for _ in range(2):
        parking.offload([view, other, whole, torch.empty(0)])
        assert parking.is_offloaded
        assert whole.untyped_storage().nbytes() == other.untyped_storage().nbytes() == 0
        parking.reload()
        assert whole.tolist() == list(range(10))
        assert view.tolist() == [3, 4]
        assert other.tolist() == [1, 1, 1]
        view.add_(0)


def test_parking_twice_would_lose_the_values():
    parking, held = HostOffload(), torch.ones(2)
    parking.offload([held])
    with pytest.raises(RuntimeError, match="parked already"):
        parking.offload([held])
    parking.reload()
    parking.reload()
    assert held.tolist() == [1, 1]
