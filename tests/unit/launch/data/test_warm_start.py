"""If these fail, a run starts from a warm model that its settings would not give, or trains one for nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.data.demo.model import build_demo_model
from launch.data.preparation import find_or_build_model
from launch.data.warm_start import delete_partial_models, plan_warm_start_batches
from launch.data.warm_start_cache import warm_start_cache_key, warm_start_folder
from protocol.codec import inspect_blob, pack_trajectory
from protocol.errors import UserError
from protocol.run_directory.trajectory_export import TrajectoryExporter
from tests.support.runs.trajectories import make_trajectory


@pytest.mark.parametrize(
    "change",
    [
        *("learner.betas=[0.8, 0.9]", "learner.clip_grad=0.5", "learner.weight_decay=0.1", "learner.adam_eps=1e-6"),
        *("learner.threads=2", "learner.dtype=bfloat16", "learner.micro_batch_tokens=4096", "learner.ranks=2"),
        *("run.seed=1", "warm_start.lr=1e-3", "model.layers=1", 'agent.done_text="ready"'),
    ],
)
def test_a_setting_that_the_warm_start_reads_changes_its_cache_key(change: str) -> None:
    assert warm_start_cache_key(load_recipe("demo", [change])) != warm_start_cache_key(load_recipe("demo"))


@pytest.mark.parametrize(
    "change",
    ["run.negative_control=lr0", "run.steps=3", "learner.lr=1e-5", "learner.eps_high=0.2", "learner.publish_every=2"],
)
def test_a_setting_that_only_training_on_rewards_reads_keeps_the_cache_key(change: str) -> None:
    assert warm_start_cache_key(load_recipe("demo", [change])) == warm_start_cache_key(load_recipe("demo"))


def test_partial_models_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    dead = next(pid for pid in range(4_000_000, 5_000_000) if not Path(f"/proc/{pid}").exists())
    for name in (f"warm-start-ab.{dead}.partial", f"warm-start-ab.{os.getpid()}.partial", "warm-start-ab"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    delete_partial_models(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"warm-start-ab", f"warm-start-ab.{os.getpid()}.partial"}


# -- on data -----------------------------------------------------------------------------------------------------------

SMALL = ("model.layers=1", "model.hidden=32", "model.intermediate=64", "model.heads=1")


def talk(word: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": word}]}) + "\n"


def export(run_dir: Path, sample: int) -> None:
    blob = pack_trajectory(make_trajectory(0, sample, reward=1.0))
    TrajectoryExporter(run_dir).export_trajectory(inspect_blob(blob), blob)


def test_changed_data_under_the_same_names_changes_the_cache_key(tmp_path: Path) -> None:
    """Otherwise a run would start from a model that was trained on data that has been corrected since."""
    data, run, keys = tmp_path / "data.jsonl", tmp_path / "run", list[str]()
    config = load_recipe("demo", [f'warm_start.data=["{data}", "{run}"]'])
    data.write_text(talk("done"))
    export(run, 0)
    keys.append(warm_start_cache_key(config))
    data.write_text(talk("gone"))
    keys.append(warm_start_cache_key(config))
    export(run, 1)
    keys.append(warm_start_cache_key(config))
    assert len(set(keys)) == 3
    assert warm_start_cache_key(config) == keys[-1]


def test_every_epoch_trains_all_data_at_the_learning_rates_of_the_warm_start(tmp_path: Path) -> None:
    build_demo_model(tmp_path / "model", load_recipe("demo", SMALL).model, 0)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(map(talk, ("done", "ready", "gone"))))
    overrides = ["epochs=2", "batch_size=2", "lr=0.5", "warmup_steps=0", f'data=["{data}", "{tmp_path / "run"}"]']
    export(tmp_path / "run", 0)
    steps, batches = plan_warm_start_batches(
        load_recipe("demo", [f"warm_start.{each}" for each in overrides]), tmp_path / "model"
    )
    made = list(batches)
    assert steps == len(made) == 4
    assert [len(batch.sequences) for batch in made] == [2, 2, 2, 2]
    for epoch in (made[:2], made[2:]):
        assert len({ids.tobytes() for batch in epoch for ids, _ in batch.sequences}) == 4
    assert made[0].lr == 0.5
    assert made[0].lr > made[1].lr > made[2].lr > made[3].lr > 0.025


def test_data_that_the_warm_start_cannot_use_is_named(tmp_path: Path) -> None:
    build_demo_model(tmp_path / "model", load_recipe("demo", SMALL).model, 0)
    (tmp_path / "data.jsonl").write_text(talk("done"))
    config = load_recipe("demo", [f'warm_start.data=["{tmp_path / "data.jsonl"}"]', "warm_start.min_score=1"])
    with pytest.raises(UserError, match=r"data\.jsonl:1 has no 'score' or 'reward', and min_score needs one"):
        plan_warm_start_batches(config, tmp_path / "model")


def test_a_model_of_the_user_is_warmed_up_only_on_given_data(tmp_path: Path) -> None:
    """And what it became is found by the next run, unless its own folder has changed since."""
    model, data = tmp_path / "model", tmp_path / "data.jsonl"
    build_demo_model(model, load_recipe("demo", SMALL).model, 0)
    data.write_text(talk("done"))
    overrides = [f"model.path={model}", f"run.dir={tmp_path / 'runs'}"]
    with pytest.raises(UserError, match=r"or name warm_start\.data"):
        load_recipe("demo", overrides)
    config = load_recipe("demo", [*overrides, f'warm_start.data=["{data}"]'])
    assert find_or_build_model(config, tmp_path / "run") == (model, False)
    cold = load_recipe("demo", [*overrides, "warm_start.enabled=false"])
    assert find_or_build_model(cold, tmp_path / "run") == (model, True)
    kept = warm_start_folder(config)
    kept.mkdir(parents=True)
    (kept / "model.safetensors").touch()
    assert find_or_build_model(config, tmp_path / "run") == (kept, True)
    os.utime(model / "model.safetensors", ns=(1, 1))
    assert find_or_build_model(config, tmp_path / "run") == (model, False)
