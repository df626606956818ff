"""If these fail, a run with adapters trains what it should not, or cannot be gone on with or trained again."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from tests.support.runs.cluster_runs import MiniRuns, replay_summary
from tests.support.runs.trajectory_accounting import assert_accounting_balances, read_lines

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

ADAPTED = (
    *("--set", "warm_start.enabled=false", "--set", "lora.rank=4", "--set", "lora.targets=o_proj"),
    *("--set", "kl.coefficient=0.1", "--set", "evaluation.tasks_per_family=0"),
)


def test_a_run_with_adapters_trains_resumes_and_replays(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("adapters", *ADAPTED, "--steps", "2")
    run.succeed()
    run = mini_runs.resume("adapters", "--steps", "3")
    assert run.succeed()["steps"] == 3
    assert_accounting_balances(run.path)
    assert not (run.path / "reference").exists(), "the base is the reference"
    assert read_lines(run.path / "metrics.jsonl")[-1]["kl_reference"] > 0
    served = sorted((run.path / "weights").glob("v*"), key=lambda path: int(path.name[1:]))
    first, last = (load_file(folder / "model.safetensors") for folder in (run.path / "model", served[-1]))
    changed = {name.split(".")[-2] for name, weight in last.items() if not weight.equal(first[name])}
    assert changed == {"o_proj"}
    assert replay_summary(run.path)["equal"]


def test_engines_load_adapters_alone_without_a_pause(mini_runs: MiniRuns) -> None:
    """Each start's versions are labelled as such, and what is published is the adapters and nothing else."""
    run = mini_runs.start("alone", *ADAPTED, "--set", "engine.weight_transfer=adapters", "--steps", "2")
    run.succeed()
    first = max(event["version"] for event in run.events("weights.published"))
    run = mini_runs.resume("alone", "--steps", "3")
    summary = run.succeed()
    assert_accounting_balances(run.path)
    assert (summary["steps"], summary["weights"]["pause_ms_max"]) == (3, 0)
    published = [event["version"] for event in run.events("weights.published")]
    loads = run.events("engine.loaded")
    assert {event["version"] for event in loads} <= set(published)
    assert max(event["version"] for event in loads) == max(published) > first
    assert not run.events("engine.load_failed")
    measured = run.events("parity.measured")
    assert [event["step"] for event in measured] == [0, 2], "each start begins with one"
    assert all(event["k3"] < event["limit"] == 1e-4 for event in measured)
    for folder in (run.path / "weights").glob("v*"):
        assert {path.name for path in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    segments = [
        each for entry in read_export_index(run.path) for each in read_exported_trajectory(run.path, entry).segments
    ]
    sampled = {int(version) for each in segments for version in each.versions[each.loss_mask == 1]}
    assert sampled <= set(published)
    assert len(sampled) > 1
    assert replay_summary(run.path)["equal"]
