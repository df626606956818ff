"""If this fails, weights that are sent in pieces are not what was published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from actors.engines.weights.tensor_buckets import plan_buckets, read_bucket

CPU = torch.device("cpu")


@pytest.mark.parametrize("shared", [False, True])
def test_a_folder_is_read_in_pieces_of_one_type_and_a_bounded_size(tmp_path: Path, *, shared: bool) -> None:
    random = torch.Generator().manual_seed(0)
    first = {f"a{index}": torch.randn(50, index + 1, generator=random) for index in range(6)}
    second = {"scalar": torch.tensor(3.0), "half": torch.randn(7, generator=random).bfloat16(), "big": torch.ones(900)}
    save_file(first, tmp_path / "one.safetensors")
    save_file(second, tmp_path / "two.safetensors")
    buckets = [read_bucket(piece, shared=shared) for piece in plan_buckets(tmp_path, bucket_bytes=1_000)]
    tensors = {name: tensor for bucket in buckets for name, tensor in bucket.tensors(CPU)}
    assert tensors.keys() == first.keys() | second.keys()
    for name, tensor in (first | second).items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype
    assert all(bucket.flat.nbytes <= 1_000 or len(bucket.spec.names) == 1 for bucket in buckets)
    assert all(bucket.flat.is_shared() == shared for bucket in buckets)
    assert 5 < len(buckets) < 9
