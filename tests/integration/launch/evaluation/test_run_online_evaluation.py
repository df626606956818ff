"""If these fail, a run's evaluation beside training is of more than one set of weights, stops rollout, or is lost when
the driver dies; or its best checkpoint cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checkpoints.store import CheckpointStore
from launch.data.preparation import require_model_files
from launch.evaluation.held_out.evaluation_store import read_evaluation_results
from launch.settings.checkpoint import RetentionSettings
from protocol.cli.exit_codes import EXIT_OK, EXIT_USER
from tests.support.commands import run_json
from tests.support.runs.cluster_runs import PATIENCE_S, MiniRun, MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances, read_lines

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]

EVALUATIONS = ("--set", "evaluation.before_training=false", "--set", "evaluation.in_flight=2")


def assert_each_is_of_one_version(run: MiniRun) -> None:
    step_of = {event["version"]: event["step"] for event in run.events("weights.published")}
    results = list(read_evaluation_results(run.path))
    assert results
    for result in results:
        assert step_of[result.version] == result.step
        assert {version for attempt in result.attempts for version in attempt.versions} == {result.version}


def steps_of(run: MiniRun, *kinds: str) -> list[int]:
    return [event["step"] for event in run.events(*kinds)]


def test_a_run_evaluates_during_training_and_keeps_its_best_checkpoint(mini_runs: MiniRuns) -> None:
    steps, every = 12, 2
    run = mini_runs.start(
        "evaluations",
        *EVALUATIONS,
        *("--steps", str(steps), "--set", f"evaluation.every_steps={every}"),
        *("--set", "checkpoint.keep_best=true", "--set", "checkpoint.keep=1"),
    )
    run.wait_event("an evaluation", "evaluation.started")
    requested = run_json("launch.control.ctl", run.path, "evaluate-now", "--reason", "x", "--timeout-s", PATIENCE_S)
    assert requested.exit_code in {EXIT_OK, EXIT_USER}, requested
    summary = run.succeed()
    assert_accounting_balances(run.path)
    assert_each_is_of_one_version(run)
    beside = [event["step"] for event in run.events("evaluation.finished") if "version" in event]
    assert sorted(steps_of(run, "evaluation.started")) == sorted(beside), "one was begun and did not end"
    due = set(range(every, steps, every))
    assert due <= {*beside, *steps_of(run, "evaluation.skipped")}
    first = run.events("evaluation.started")[0]
    over = next(event for event in run.events("evaluation.finished") if event["name"] == first["name"])
    between = [event for event in run.events("learner.step") if first["t"] < event["t"] < over["t"]]
    assert between, "training stood still for it"
    assert [event["reason"] for event in run.events("evaluation.requested")] == ["x"] * (requested.exit_code == EXIT_OK)
    assert not run.events("process.died", "engine.died", "evaluation.failed", "evaluation.aborted")
    assert not list((run.path / "evaluations").glob("v*/weights*")), "what was under way is left behind"
    assert summary["staleness"]["max"] <= summary["staleness"]["max_staleness"]
    assert [row["step"] for row in summary["evaluation"]["steps"]] == sorted(beside)
    told_by_metrics = [
        line["evaluation_step"] for line in read_lines(run.path / "metrics.jsonl") if "evaluation_step" in line
    ]
    assert told_by_metrics == [step for step in beside if step in told_by_metrics]
    assert "During training" in (run.path / "report.html").read_text()

    store = CheckpointStore(run.path, RetentionSettings(keep=1, keep_best=True))
    best, found = summary["best"], store.best_scored()
    assert found is not None
    assert (best["step"], best["checkpoint"]) == (found[0].manifest.step, str(found[0].path))
    assert best["pass_at_1"] == max(store.scores().values())
    require_model_files(Path(best["model"]))


def test_an_evaluation_interrupted_by_the_drivers_death_resumes_on_the_same_weights(mini_runs: MiniRuns) -> None:
    options = ("--steps", "4", "--set", "evaluation.every_steps=2", "--set", "evaluation.attempts=24")
    run = mini_runs.start("evaluations-killed", *EVALUATIONS, *options, "--set", "evaluation.in_flight=1")
    begun = run.wait_event("an evaluation", "evaluation.started")
    run.wait_event(
        "some attempts", "evaluation.progress", lambda event: event["name"] == begun["name"] and event["done"] >= 2
    )
    run.clean_up()
    kept = run.path / "evaluations" / f"v{begun['version']}" / "attempts.jsonl"
    before = kept.read_bytes().splitlines()
    assert 2 <= len(before) < 25
    run = mini_runs.resume("evaluations-killed", "--set", "evaluation.in_flight=4")
    run.succeed()
    assert_accounting_balances(run.path)
    assert_each_is_of_one_version(run)
    (result,) = [each for each in read_evaluation_results(run.path) if each.version == begun["version"]]
    assert len(result.attempts) == 25
    progress = [event["done"] for event in run.events("evaluation.progress") if event["name"] == begun["name"]]
    assert progress.count(len(before)) >= 1
    assert sum(done == 0 for done in progress) == 1, "it began anew"
    assert steps_of(run, "evaluation.finished").count(2) == 1


def test_on_a_shared_device_the_learner_waits_for_the_evaluation(mini_runs: MiniRuns) -> None:
    shared = ("--mode", "sync", "--set", "cluster.placement=colocated", "--set", "evaluation.every_steps=1")
    run = mini_runs.start("evaluations-shared", *EVALUATIONS, *shared)
    summary = run.succeed()
    assert_accounting_balances(run.path)
    assert_each_is_of_one_version(run)
    assert [row["step"] for row in summary["evaluation"]["steps"]] == [1, 2]
    assert not run.events("evaluation.skipped", "evaluation.failed", "evaluation.aborted")
    begun = {event["step"]: event["t"] for event in run.events("evaluation.started")}
    over = {event["step"]: event["t"] for event in run.events("evaluation.finished")}
    steps = run.events("learner.step")
    assert not any(begun[step] < event["t"] < over[step] for step in begun for event in steps)
    assert len(run.events("engine.started")) == 1, "there is memory for one server"
