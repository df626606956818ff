"""If this fails, a run with adapters trains what it should not, or cannot be gone on with or trained again."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from tests.support.books import assert_books_balance, read_lines
from tests.support.cluster_runs import MiniRuns, replayed

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

ADAPTED = (
    *("--set", "warm_start.enabled=false", "--set", "lora.rank=4", "--set", "lora.targets=o_proj"),
    *("--set", "kl.coefficient=0.1", "--set", "evaluation.tasks_per_family=0"),
)


def test_a_run_with_adapters_trains_goes_on_and_is_trained_again(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("adapters", *ADAPTED, "--steps", "2")
    run.succeed()
    run = mini_runs.resume("adapters", "--steps", "3")
    assert run.succeed()["steps"] == 3
    assert_books_balance(run.path)
    assert not (run.path / "reference").exists(), "the base is the reference"
    assert read_lines(run.path / "metrics.jsonl")[-1]["kl_reference"] > 0
    served = sorted((run.path / "weights").glob("v*"), key=lambda path: int(path.name[1:]))
    first, last = (load_file(folder / "model.safetensors") for folder in (run.path / "model", served[-1]))
    changed = {name.split(".")[-2] for name, weight in last.items() if not weight.equal(first[name])}
    assert changed == {"o_proj"}
    assert replayed(run.path)["equal"]
