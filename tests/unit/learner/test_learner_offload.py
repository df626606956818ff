"""Parked tensors come back as they were, to whoever holds them."""

import pytest
import torch

from learner.offload import Parking


def test_values_and_views_survive():
    whole = torch.arange(10.0)
    view, other = whole[3:5], torch.ones(3, dtype=torch.bfloat16)
    parking = Parking()
    for _ in range(2):
        parking.park([view, other, whole, torch.empty(0)])
        assert parking.parked
        assert whole.untyped_storage().nbytes() == other.untyped_storage().nbytes() == 0
        parking.fetch()
        assert whole.tolist() == list(range(10))
        assert view.tolist() == [3, 4]
        assert other.tolist() == [1, 1, 1]
        view.add_(0)


def test_parking_twice_would_lose_the_values():
    parking, held = Parking(), torch.ones(2)
    parking.park([held])
    with pytest.raises(RuntimeError, match="parked already"):
        parking.park([held])
    parking.fetch()
    parking.fetch()
    assert held.tolist() == [1, 1]
