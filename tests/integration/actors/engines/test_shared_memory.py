"""If this fails, a machine whose shared memory is full loses its engine, or nobody is told what to do about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.actors.engines import tiny_qwen

STAGE = """
import asyncio, sys
from pathlib import Path
from actors.engines.messages import InvalidWeights, WeightLoadError
from actors.engines.weights.tensor_loader import TensorWeightLoader
from actors.engines.weights.weight_files import read_model_shape
from tests.integration.actors.engines import tiny_qwen
folder = Path(sys.argv[1])
try:
    asyncio.run(TensorWeightLoader("cpu", 1).stage_weights(tiny_qwen.manifest(1, folder), read_model_shape(folder)))
except WeightLoadError as error:
    print("the files are to blame" if isinstance(error, InvalidWeights) else error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a tmpfs")
@pytest.mark.slow
async def test_full_shared_memory_fails_with_an_error_that_suggests_loading_from_disk(tmp_path: Path) -> None:
    """In a mount namespace whose /dev/shm holds less than the model."""
    await asyncio.to_thread(tiny_qwen.write_random, tmp_path / "model")
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
    staged = [sys.executable, "-c", STAGE, str(tmp_path / "model")]
    done = await asyncio.to_thread(
        subprocess.run,
        ["unshare", "--mount", "sh", "-c", mount, "sh", *staged],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "No space left" in done.stdout
    assert "engine.load_weights_from = 'disk'" in done.stdout
