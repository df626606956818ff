"""Attention of chunks over the sequences before them, against torch's own over the whole."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import learner.parallel.context_exchange
from learner.parallel.context_exchange import PrefixAttentionCall, make_sequence_bounds, prefix_attention

HEADS, KEY_HEADS, SIZE = 4, 2, 8


def call_of(queries, keys):
    bounds = make_sequence_bounds(queries, keys, torch.device("cpu"))
    return PrefixAttentionCall(slice(0, sum(queries)), torch.arange(sum(keys)), tuple(queries), tuple(keys), bounds)


def inputs(queries, keys, dtype=torch.float64):
    made = torch.Generator().manual_seed(3)
    shapes = (sum(queries), HEADS, SIZE), (sum(keys), KEY_HEADS, SIZE), (sum(keys), KEY_HEADS, SIZE)
    return [torch.randn(shape, generator=made, dtype=dtype, requires_grad=True) for shape in shapes]


def whole_attention(query, key, value, queries, keys):
    """Each chunk's queries behind as many zeros as its sequence has keys before them."""
    found = []
    for chunk, own_keys, own_values in zip(query.split(queries), key.split(keys), value.split(keys), strict=True):
        padded = torch.cat([chunk.new_zeros(len(own_keys) - len(chunk), HEADS, SIZE), chunk])
        q, k, v = (x.transpose(0, 1)[None] for x in (padded, own_keys, own_values))
        out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
        found.append(out[0].transpose(0, 1).flatten(1)[-len(chunk) :])
    return torch.cat(found)


@pytest.mark.parametrize("least", [1, 3, 64])
@pytest.mark.parametrize(("queries", "keys"), [([7], [7]), ([5], [23]), ([4, 9, 1], [4, 30, 12])])
def test_attention_in_query_blocks_equals_whole_attention(monkeypatch, least, queries, keys):
    monkeypatch.setattr(learner.parallel.context_exchange, "LEAST_QUERIES", least)
    monkeypatch.setattr(learner.parallel.context_exchange, "BAND_PLACES", 1)
    found, expected = inputs(queries, keys), inputs(queries, keys)
    prefix_attention(*found, call_of(queries, keys), 0.3).square().sum().backward()
    whole_attention(*expected, queries, keys).square().sum().backward()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.grad, other.grad, atol=1e-12)


def test_masks_saved_for_backward_are_smaller_than_queries_times_keys(monkeypatch):
    monkeypatch.setattr(learner.parallel.context_exchange, "BAND_PLACES", 1)
    queries, keys = [1024], [8192]
    query, key, value = inputs(queries, keys, torch.float32)
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = prefix_attention(query, key, value, call_of(queries, keys), 0.3)
    out.sum().backward()
    assert sum(kept.values()) < queries[0] * keys[0]
