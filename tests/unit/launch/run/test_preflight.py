"""If these fail, a run that cannot work is found out minutes later, with a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.data.demo.model import build_demo_model
from launch.run import preflight
from protocol.errors import UserError


def test_a_shared_gpu_needs_the_memory_saver_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the run fails minutes later, with the reason only in SGLang's log."""
    monkeypatch.setattr(preflight, "MEMORY_SAVER", "torch_saver_that_is_not_there")
    sharing = ["run.mode=sync", "cluster.placement=colocated"]
    preflight.check_memory_saver(load_recipe("demo", sharing))
    cuda = ["learner.device=cuda", "engine.device=cuda"]
    preflight.check_memory_saver(load_recipe("demo", cuda))
    with pytest.raises(UserError, match=r"-m pip install torch-saver-that-is-not-there, or --set cluster\.placement="):
        preflight.check_memory_saver(load_recipe("demo", [*sharing, *cuda]))


def test_a_context_beyond_the_positions_of_the_model_is_refused_with_the_maximum(tmp_path: Path) -> None:
    preflight.check_context(load_recipe("demo", ["agent.context_tokens=1018"]))
    with pytest.raises(UserError, match=r"1019 and the model has 1024 positions.*--set agent\.context_tokens=1018"):
        preflight.check_context(load_recipe("demo", ["agent.context_tokens=1019"]))
    build_demo_model(tmp_path, load_recipe("demo", ["model.layers=1"]).model, 0)
    written = json.loads((tmp_path / "config.json").read_text()) | {"max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(written))
    preflight.check_context(
        load_recipe("demo", [f"model.path={tmp_path}", "warm_start.enabled=false", "agent.context_tokens=4090"])
    )
