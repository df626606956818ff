"""The frozen weights of a KL penalty come and go without a trace."""

import pytest
import torch

from learner.models.reference import CopiedReference


def test_the_reference_equals_the_frozen_weights_and_leaves_the_model_unchanged():
    """A bit that stayed behind would be trained on, and saved."""
    model = torch.nn.Linear(3, 2)
    first = [parameter.detach().clone() for parameter in model.parameters()]
    reference = CopiedReference(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1).add_(float("nan") if parameter.ndim == 1 else 1e-7)
    trained = [parameter.detach().clone() for parameter in model.parameters()]
    homes = [parameter.data_ptr() for parameter in model.parameters()]
    for _ in range(2):
        with reference.activated():
            assert all(map(torch.equal, model.parameters(), first))
        for parameter, own in zip(model.parameters(), trained, strict=True):
            torch.testing.assert_close(parameter.detach(), own, rtol=0, atol=0, equal_nan=True)
    with pytest.raises(KeyError), reference.activated():
        raise KeyError
    torch.testing.assert_close(model.weight.detach(), trained[0], rtol=0, atol=0)
    assert [parameter.data_ptr() for parameter in model.parameters()] == homes, "buffers that others share stay"
