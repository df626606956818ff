"""If these fail, the learner runs on another device than the configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.settings import learner_environment, learner_settings


@pytest.mark.parametrize(("device", "hidden"), [("cpu", {"CUDA_VISIBLE_DEVICES": ""}), ("cuda", {})])
def test_a_learner_on_the_cpu_sees_no_gpu(device: str, hidden: dict[str, str]) -> None:
    config = load_recipe("demo", [f"learner.device={device}"])
    assert learner_settings(config, Path("model")).device == device
    assert learner_environment(config) == {"OMP_NUM_THREADS": "1"} | hidden
