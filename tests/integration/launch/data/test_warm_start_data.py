"""If this fails, a run that names data of its own begins with a model that has not seen it."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
import ray

from launch.actor_group.learner_group import learner_spec, spawn_learner_group
from launch.config import load_recipe
from launch.data.demo.model import build_demo_model
from launch.data.preparation import PreparedRun, find_or_build_model
from launch.data.warm_start import run_warm_start
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from learner.rank import LearnerRank
from protocol.events import EventLog

pytestmark = pytest.mark.ray


@pytest.fixture
def home(ray_node: None) -> ClusterNode:
    return ClusterNode("node-0", ray.get_runtime_context().get_node_id(), "127.0.0.1")


@pytest.mark.slow
async def test_a_run_warm_starts_on_its_data_and_the_next_run_reuses_the_result(
    tmp_path: Path, home: ClusterNode
) -> None:
    shape = ["model.layers=1", "model.hidden=64", "model.intermediate=96", "model.heads=2"]
    build_demo_model(tmp_path / "model", load_recipe("demo", shape).model, 0)
    talk = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "done"}]
    (tmp_path / "data.jsonl").write_text((json.dumps({"messages": talk, "score": 1}) + "\n") * 8)
    settings = [f'data=["{tmp_path / "data.jsonl"}"]', "epochs=6", "batch_size=4", "lr=1e-2", "warmup_steps=0"]
    config = load_recipe(
        "demo",
        [f"model.path={tmp_path / 'model'}", f"run.dir={tmp_path}", *(f"warm_start.{each}" for each in settings)],
    )
    model, warm = find_or_build_model(config, tmp_path)
    assert not warm
    with RunDirectory.create(tmp_path, "demo", "run") as directory:
        learners = spawn_learner_group(learner_spec(config, model), directory, home)
        await learners.call(LearnerRank.setup)
        events = EventLog(directory.path, "driver", "node-0")
        await run_warm_start(config, learners, PreparedRun(model, warm), events)
        events.close()
        digest = await learners.call(LearnerRank.weights_digest)
        lines = (directory.path / "events" / "driver.jsonl").read_text().splitlines()
    progress = [line for line in map(orjson.loads, lines) if line["kind"] == "warm_start.progress"]
    assert (progress[-1]["step"], progress[-1]["steps"]) == (12, 12)
    assert progress[-1]["loss"] < 3.0, "where it began at 7"
    kept, warm = find_or_build_model(config, tmp_path)
    assert warm
    again = spawn_learner_group(learner_spec(config, kept), directory, home, generation=2)
    await again.call(LearnerRank.setup)
    assert await again.call(LearnerRank.weights_digest) == digest
