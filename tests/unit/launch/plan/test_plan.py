"""If these fail, a plan promises what a run does not come to, or a model is found not to fit after an hour."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launch.config import RunConfig, load_recipe, resolve
from launch.data.demo.model import CONTEXT_TOKENS, build_demo_model
from launch.plan.forecast import (
    Bottleneck,
    Forecast,
    ForecastBasis,
    basis_from_scenario,
    basis_from_trace,
    estimate_needs,
    forecast_caveat,
    forecast_run,
    max_episodes,
)
from launch.plan.judge_memory import find_judge_problems, judge_memory
from launch.plan.memory import ProcessMemory, engine_memory, kv_bytes_per_token, learner_memory, read_model_shape
from launch.plan.memory_fit import find_memory_problems
from launch.simulate.run_trace import RunTrace, read_trace
from launch.simulate.scenario import find_scenario, read_scenario
from learner.models.qwen import QWEN_FAMILIES, QwenConfig
from protocol.cli.exit_codes import EXIT_USER
from protocol.errors import UserError
from tests.support.commands import call_command

DATA = Path(__file__).resolve().parents[3] / "data"
RUNS = [DATA / "demo_16_steps.json", DATA / "demo_old_tokens.json"]
"""Real runs of the demo: four groups a step; one, with tokens as old as they may be."""
QWEN3_8B = QwenConfig(QWEN_FAMILIES["qwen3"], 151_936, 4096, 12_288, 36, 32, 8, 128, 1e-6, 1e6, 40_960, False)
GPU = 141 << 30


def config_of(trace: RunTrace, steps: int) -> RunConfig:
    """Return the configuration of the measured run, for ``steps`` steps."""
    file = trace.file
    values = {
        "run.steps": steps,
        "run.mode": file.mode,
        "rollout.groups_per_step": file.groups_per_step,
        "rollout.group_size": file.group_size,
        "rollout.in_flight": file.in_flight,
        "rollout.dynamic_sampling": str(file.dynamic_sampling).lower(),
        "learner.publish_every": file.publish_every,
        "checkpoint.every_steps": file.checkpoint_every,
        "staleness.max_staleness": file.max_staleness,
        "staleness.policy": file.policy,
    }
    return load_recipe("demo", [f"{key}={value}" for key, value in values.items()])


def half(trace: RunTrace, which: int) -> RunTrace:
    """Every second publication's steps, and every second group: both halves of a run are equally far in learning, and
    the machine was as busy."""
    file = trace.file
    steps = [step for number, step in enumerate(file.steps) if number // file.publish_every % 2 == which]
    return RunTrace(file.model_copy(update={"steps": steps, "groups": file.groups[which::2]}))


def planned(trace: RunTrace) -> Forecast:
    config = config_of(trace, len(trace.file.steps))
    return forecast_run(config, basis_from_trace(trace, config.rollout))


def steps_per_hour(trace: RunTrace) -> float:
    """Return the speed of the measured run."""
    steps = trace.file.steps
    return 3600 * len(steps) / sum(step.busy_s + step.wait_s for step in steps)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_half_of_a_measured_run_predicts_the_speed_of_the_other_half(path: Path, which: int) -> None:
    """Within a fifth.  Figures of one half never enter the other's."""
    trace = read_trace(path)
    assert planned(half(trace, which)).steps_per_hour == pytest.approx(steps_per_hour(half(trace, 1 - which)), rel=0.2)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_plan_of_a_measured_run_has_its_speed_and_its_staleness(path: Path) -> None:
    trace = read_trace(path)
    plan = planned(trace)
    assert plan.steps_per_hour == pytest.approx(steps_per_hour(trace), rel=0.2)
    assert plan.trained_tokens_per_s == pytest.approx(trace.measured.trained_tokens_per_s, rel=0.2)
    assert plan.staleness_mean == pytest.approx(trace.measured.staleness_mean, rel=0.2)
    assert plan.staleness_max <= trace.file.max_staleness
    assert forecast_caveat(config_of(trace, 1), basis_from_trace(trace, config_of(trace, 1).rollout)) == ""


def test_a_plan_with_other_settings_has_other_figures() -> None:
    """Otherwise its figures would agree with any plan."""
    trace = read_trace(RUNS[0])
    config = config_of(trace, 16)
    basis = basis_from_trace(trace, config.rollout)
    fewer = resolve(config.model_dump(exclude_none=True), ["rollout.in_flight=8"])
    assert forecast_run(fewer, basis).steps_per_hour < 0.6 * forecast_run(config, basis).steps_per_hour
    assert "32 concurrent episodes were measured, and here 8" in forecast_caveat(fewer, basis)
    larger = resolve(config.model_dump(exclude_none=True), ["rollout.groups_per_step=8", "rollout.group_size=4"])
    resized = basis_from_trace(trace, larger.rollout)
    assert resized.busy_s(64)[0] == pytest.approx(2 * basis.busy_s(32)[0])
    assert forecast_run(larger, resized).steps_per_hour > 0


def scenario_basis() -> ForecastBasis:
    return basis_from_scenario(read_scenario(find_scenario("small")), 0)


def test_the_bottleneck_of_a_run_is_named() -> None:
    """A person turns the knob that it names."""
    basis = scenario_basis()
    few = ["run.steps=16", "rollout.groups_per_step=8", "learner.publish_every=1", "data.training_tasks=4096"]
    slow = replace(basis, step_s=(10_000.0,))
    assert forecast_run(load_recipe("demo", few), slow).bottleneck is Bottleneck.LEARNER
    fast = replace(basis, step_s=(0.1,))
    assert forecast_run(load_recipe("demo", [*few, "rollout.in_flight=8"]), fast).bottleneck is Bottleneck.ROLLOUT
    wide = [*few, "rollout.episodes_per_worker=500", "sandbox.capacity_per_node=500", "rollout.in_flight=500"]
    bound = forecast_run(load_recipe("demo", [*wide, "run.mode=sync"]), fast)
    assert bound.bottleneck is Bottleneck.STALENESS
    assert "staleness.max_staleness" in bound.bottleneck.advice
    assert "assumed" in forecast_caveat(load_recipe("demo"), basis)


def test_needed_sandboxes_engines_and_hosts_follow_from_littles_law() -> None:
    """Little's law: 64 trajectories in 32 s, each of 100 s of which 60 are an engine's, half of them dropped."""
    basis = replace(scenario_basis(), step_s=(32.0,), episodes_per_step=64, episode_s=100.0, generate_s=60.0)
    config = load_recipe("demo", ["engine.max_running=64", "sandbox.capacity_per_node=150"])
    found = estimate_needs(config, basis, 0.5)
    assert (found.sandboxes, found.engines, found.hosts) == (400, 4, 3)


def test_episode_slots_are_shared_on_one_machine_but_not_in_a_cluster() -> None:
    assert max_episodes(load_recipe("demo", ["cluster.nodes=4"])) == 32
    joined = ["cluster.nodes=4", "cluster.address='10.0.0.1:6379'", "engine.count=4"]
    assert max_episodes(load_recipe("demo", joined)) == 128
    assert max_episodes(load_recipe("demo", [*joined, "rollout.in_flight=100"])) == 100


def test_a_run_on_a_shared_device_cannot_be_forecast() -> None:
    config = load_recipe("demo", ["cluster.placement=colocated", "run.mode=sync"])
    with pytest.raises(UserError, match="cannot be simulated"):
        forecast_run(config, scenario_basis())


def sizes(memory: ProcessMemory) -> dict[str, int]:
    return {part.name: part.bytes for part in memory.parts}


def test_the_memory_of_a_rank_follows_from_the_parameters_of_its_model() -> None:
    """Qwen3-8B in bfloat16: two bytes of weights, four of gradients, twelve of Adam for each of 8,190,735,360."""
    count = QWEN3_8B.count_parameters()
    assert count == 8_190_735_360
    alone = sizes(learner_memory(QWEN3_8B, cuda()))
    assert (alone["weights"], alone["gradients"], alone["optimizer"]) == (2 * count, 4 * count, 12 * count)
    spread = sizes(
        learner_memory(QWEN3_8B, cuda("learner.ranks=8", "learner.tp=2", "learner.distributed_optimizer=true"))
    )
    assert spread["weights"] == pytest.approx(count, rel=0.01)
    assert spread["optimizer"] == pytest.approx(12 * count / 8, rel=0.01)
    deep = sizes(learner_memory(QWEN3_8B, cuda("learner.ranks=4", "learner.pp=4")))
    assert count / 4 < deep["weights"] / 2 < count / 4 + 151_936 * 4096
    adapters = sizes(learner_memory(QWEN3_8B, cuda("lora.rank=16")))
    assert adapters["weights"] > 2 * count
    assert adapters["gradients"] < 0.02 * alone["gradients"]


CUDA = ("learner.device=cuda", "learner.dtype=bfloat16", "engine.device=cuda", "engine.dtype=bfloat16")


def cuda(*values: str) -> RunConfig:
    return load_recipe("demo", ["warm_start.enabled=false", *CUDA, *values])


def test_memory_saving_settings_lower_the_planned_memory() -> None:
    """In the order in which the knobs are named where a rank does not fit."""
    parts = {
        way: sizes(learner_memory(QWEN3_8B, cuda(f"learner.recompute={way}"))) for way in ("none", "selective", "full")
    }
    assert parts["full"]["activations"] < parts["selective"]["activations"] < parts["none"]["activations"]
    whole = learner_memory(QWEN3_8B, cuda())
    offloaded = learner_memory(QWEN3_8B, cuda("learner.offload=optimizer"))
    assert offloaded.peak_bytes < whole.peak_bytes
    halves = sizes(learner_memory(QWEN3_8B, cuda("learner.ranks=2", "learner.tp=2", "learner.sequence_parallel=true")))
    assert halves["activations"] == pytest.approx(sizes(whole)["activations"] / 2, rel=0.01)
    assert halves["logits"] <= sizes(whole)["logits"]


def test_the_kv_cache_of_an_engine_gets_the_memory_that_its_share_leaves() -> None:
    each = kv_bytes_per_token(QWEN3_8B, "bfloat16", 1)
    assert each == 2 * 36 * 8 * 128 * 2
    assert kv_bytes_per_token(QWEN3_8B, "bfloat16", 16) == each // 8, "a head is not shared further"
    few = engine_memory(QWEN3_8B, cuda("engine.max_total_tokens=100000"), GPU)
    assert sizes(few)["kv_cache"] == 100_000 * each
    many = engine_memory(QWEN3_8B, cuda("engine.max_total_tokens=100000000"), GPU)
    assert sizes(many)["kv_cache"] == int(0.85 * GPU) - 2 * QWEN3_8B.count_parameters()
    assert many.peak_bytes <= GPU


def test_a_role_that_does_not_fit_is_named_with_the_setting_to_change() -> None:
    def found(config: RunConfig, gpu: int) -> list[str]:
        learner, engine = learner_memory(QWEN3_8B, config), engine_memory(QWEN3_8B, config, gpu)
        return [*find_memory_problems(QWEN3_8B, config, learner, engine, gpu)]

    assert found(cuda("learner.ranks=8", "learner.distributed_optimizer=true", "learner.recompute=full"), GPU) == []
    (learner,) = found(cuda(), GPU)
    assert "learner.recompute=full" in learner
    saving = ("learner.ranks=2", "learner.distributed_optimizer=true", "learner.recompute=full")
    (learner,) = found(cuda(*saving), GPU // 2)
    assert "usable: --set learner.offload=optimizer, raise learner.tp and learner.ranks" in learner
    learner, engine = found(cuda("engine.mem_fraction_static=0.7"), 20 << 30)
    assert "room for 0 tokens" in engine
    assert "raise engine.tp" in engine


def test_the_judges_gpus_and_their_memory_are_part_of_the_plan(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parameters = build_demo_model(tmp_path, load_recipe("demo").model, 0)
    judge = ("judge.enabled=true", f"judge.model={tmp_path}", "judge.engines=2", "learner.advantage=turn")
    keys = [word for key in (*CUDA, *judge) for word in ("--set", key)]
    done = call_command(capfd, "launch.plan", "demo", *keys, "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, plan["gpus"]) == (0, 4)
    own = plan["memory"][2]
    assert (own["process"], own["count"], own["parts"]["weights"]) == ("judge GPU", 2, 2 * parameters)
    assert own["peak_bytes"] <= 80 << 30
    assert "memory of each of 2 judge GPUs" in done.stderr


def test_a_judge_that_does_not_fit_is_named_with_the_setting_to_change(tmp_path: Path) -> None:
    build_demo_model(tmp_path, load_recipe("demo").model, 0)
    config = cuda("judge.enabled=true", f"judge.model={tmp_path}", "learner.advantage=turn")
    for gpu, found in ((1 << 30, 0), (1 << 20, 1)):
        memory = judge_memory(config, gpu)
        assert memory is not None
        problems = [*find_judge_problems(config, memory, gpu)]
        assert (len(problems), "raise judge.tp" in "".join(problems)) == (found, found == 1)


def test_the_demo_models_shape_is_that_of_the_model_that_is_built() -> None:
    shape = read_model_shape(load_recipe("demo").model, CONTEXT_TOKENS)
    assert shape.count_parameters() == pytest.approx(0.82e6, rel=0.01)


def test_the_command_prints_one_object_and_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    done = call_command(capfd, "launch.plan", "demo", "--nodes", "2", "--from", RUNS[0], "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert {"weights", "gradients", "optimizer", "activations", "logits"} == set(output["memory"][0]["parts"])
    assert {"weights", "kv_cache"} == set(output["memory"][1]["parts"])
    assert output["forecast"]["steps_per_hour"] > 0
    assert output["forecast"]["staleness_mean"] > 0
    assert set(output["needs"]) == {"sandboxes", "engines", "hosts"}
    assert "steps per hour" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["demo", "--from", "/nowhere"], "--from /nowhere does not exist"),
        (["demo", "--scenario", "smal"], "did you mean 'small'"),
        (["dmo"], "did you mean 'demo'"),
        (["demo", "--gpu-gb", "none"], "argument --gpu-gb: must be a valid number"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(
    arguments: list[str], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call_command(capfd, "launch.plan", *arguments, "--json")
    assert done.returncode == json.loads(done.stdout)["exit_code"] == EXIT_USER
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
