"""If these fail, a run that cannot work is found out minutes later, with a traceback."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from aiohttp import web

from launch.actor_group.specs.judge_spec import check_judge_model
from launch.config import load_recipe
from launch.data.demo.model import build_demo_model
from launch.doctor.finding import FindingLevel
from launch.run import preflight
from protocol.errors import UserError
from tests.support.fakes.fake_judge import unreachable_url
from tests.support.network.aiohttp_servers import serve_on_loopback


def test_a_shared_gpu_needs_the_memory_saver_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the run fails minutes later, with the reason only in SGLang's log."""
    monkeypatch.setattr(preflight, "MEMORY_SAVER", "torch_saver_that_is_not_there")
    sharing = ["run.mode=sync", "cluster.placement=colocated"]
    preflight.check_memory_saver(load_recipe("demo", sharing))
    cuda = ["learner.device=cuda", "engine.device=cuda"]
    preflight.check_memory_saver(load_recipe("demo", cuda))
    with pytest.raises(UserError, match=r"-m pip install torch-saver-that-is-not-there, or --set cluster\.placement="):
        preflight.check_memory_saver(load_recipe("demo", [*sharing, *cuda]))


@pytest.mark.parametrize(
    ("positions", "missing", "says"),
    [
        (8192, "", ""),
        (4096, "", r"judge\.max_new_tokens = 4096 leaves no room for a question: .* allow 4090 tokens for both"),
        (8192, "config.json", r"has no config\.json with max_position_embeddings.*or set judge\.url"),
        (8192, "model.safetensors", r"has no \*\.safetensors, the weights that its engines load"),
        (8192, "tokenizer.json", "has no usable tokenizer"),
    ],
)
def test_a_judge_that_cannot_be_served_or_asked_is_refused(
    tmp_path: Path, positions: int, missing: str, says: str
) -> None:
    build_demo_model(tmp_path, load_recipe("demo", ["model.layers=1"]).model, 0, positions)
    (tmp_path / missing).unlink() if missing else None
    judge = ("judge.enabled=true", f"judge.model={tmp_path}", "learner.advantage=turn")
    with pytest.raises(UserError, match=says) if says else nullcontext():
        check_judge_model(load_recipe("demo", judge))


@pytest.mark.parametrize(
    ("status", "says"), [(None, "does not answer"), (401, "refuses the key"), (404, ""), (200, "")]
)
async def test_a_judge_whose_server_cannot_be_asked_is_a_warning_before_the_run(status: int | None, says: str) -> None:
    async def list_models(_: web.Request) -> web.Response:
        return web.Response(status=status or 200)

    app = web.Application()
    app.router.add_get("/v1/models", list_models)
    async with serve_on_loopback(app) as port:
        url = f"http://127.0.0.1:{port}" if status else unreachable_url()
        words = ["judge.enabled=true", f"judge.url={url}", "learner.advantage=turn"]
        found = await asyncio.to_thread(preflight.find_judge_warnings, load_recipe("demo", words))
    assert [each.level for each in found] == ([FindingLevel.WARNING] if says else [])
    assert says in " ".join(map(str, found))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, ""),
        ({"max_position_embeddings": 64}, ""),
        ({"num_hidden_layers": 3, "vocab_size": 9}, r"has another vocab_size, num_hidden_layers than .*model: name a"),
        (None, r"kl\.reference = '.*reference' cannot be compared with .*config\.json cannot be read"),
    ],
)
def test_a_reference_of_another_shape_than_the_model_is_refused(
    tmp_path: Path, changed: dict[str, int] | None, says: str
) -> None:
    model, reference = tmp_path / "model", tmp_path / "reference"
    build_demo_model(model, load_recipe("demo", ["model.layers=1"]).model, 0)
    shutil.copytree(model, reference)
    config = reference / "config.json"
    written = json.loads(config.read_text()) | (changed or {})
    config.write_text(json.dumps(written)) if changed is not None else config.unlink()
    keys = [f"model.path={model}", "warm_start.enabled=false", f"kl.reference={reference}", "kl.coefficient=0.1"]
    with pytest.raises(UserError, match=says) if says else nullcontext():
        preflight.check_reference(load_recipe("demo", keys))


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
