"""If these fail, an engine on a CPU stands still for its checksum, or its checksum tells no weights apart."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
from actors.engines.server import cpu_patches
assert cpu_patches.install_cpu_patches()
from sglang.srt.utils import weight_checker
before = weight_checker.tensor_hash
cpu_patches.patch_weight_checksum()
import torch, xxhash
weights = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
assert weight_checker.tensor_hash is not before
found = weight_checker._hash_tensor(weights)
assert found == xxhash.xxh3_64_hexdigest(weights.view(torch.uint8).numpy().tobytes()), found
assert weight_checker._hash_tensor(weights.t()) != found, "it hashes what a tensor holds, not what lies beneath"
changed = weights.clone()
changed[2, 3] += 1
assert weight_checker._hash_tensor(changed) != found
print("told apart")
"""
"""In a process of its own, because of the patches."""


@pytest.mark.slow
def test_the_servers_checksum_covers_every_bit() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=False)
    assert done.stdout == "told apart\n", done.stderr[-3000:]
