"""If these fail, a run that cannot work is found out minutes later, with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import preflight
from launch.config import load_recipe
from protocol.errors import UserError


@pytest.mark.parametrize("key", ["learner.device", "engine.device"])
def test_cuda_without_a_gpu_is_refused_by_its_key(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_DEVICES", tmp_path)
    (tmp_path / "nvidiactl").touch()
    preflight.check_devices(load_recipe("demo"))
    config = load_recipe("demo", [f"{key}=cuda"])
    with pytest.raises(UserError, match=rf"^{key} = cuda, and this machine has no GPU.*--set {key}=cpu"):
        preflight.check_devices(config)
    (tmp_path / "nvidia0").touch()
    preflight.check_devices(config)
