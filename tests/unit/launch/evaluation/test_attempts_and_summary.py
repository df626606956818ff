"""If these fail, an evaluation repeats or forgets attempts, or counts what is nobody's fault as the policy's."""

from __future__ import annotations

import csv
from dataclasses import replace
from html import escape

import pytest

from launch.evaluation.evaluate import describe_errors
from launch.evaluation.results.csv_tables import COLUMNS, render_results_csv, render_tasks_csv
from launch.evaluation.results.evaluation_page import render_evaluation_page
from launch.evaluation.results.evaluation_summary import (
    AgentFacts,
    EvalFacts,
    EvaluationDescription,
    FamilyResult,
    RewardStatistics,
    summarise_attempts,
)
from launch.evaluation.standalone.attempt_plan import plan_attempts, remaining_attempts
from protocol.evaluation import (
    AttemptError,
    AttemptId,
    AttemptRecord,
    AttemptStage,
    AttemptUsage,
    AttemptVerdict,
    latest_records,
)
from protocol.trajectory import EpisodeStatus, InfraFailure

ABOUT = EvaluationDescription("demo", "out", "url", "m", "tasks", AgentFacts("bash", "", 100, 10, 4), EvalFacts(2, 1))


def graded(task: str, number: int, *, passed: bool, reward: float | None = None) -> AttemptRecord:
    worth = float(passed) if reward is None else reward
    verdict = AttemptVerdict(passed, worth, float(passed), EpisodeStatus.COMPLETED)
    return AttemptRecord(task, number, "family", 1.5, verdict, usage=AttemptUsage(2, 3, 2, 1, 40, 2))


def failed(task: str, number: int, stage: AttemptStage = AttemptStage.RESET) -> AttemptRecord:
    return AttemptRecord(
        task, number, "family", 0.5, failure=AttemptError(stage, InfraFailure.SANDBOX_START, "no sandbox, within 3 s")
    )


def test_only_attempts_that_could_end_otherwise_are_to_be_repeated() -> None:
    fault = AttemptError(AttemptStage.RESET, InfraFailure.TASK_FAULT, "it asks for 16 CPUs, and this machine has 2")
    of_task = [replace(failed("big", number), failure=fault) for number in (0, 1)]
    why = "big would fail again: it asks for 16 CPUs, and this machine has 2"
    assert list(describe_errors(of_task)) == [why]
    again = "1 attempt has no verdict (no sandbox, within 3 s): repeat the command with --retry-errors"
    assert list(describe_errors([*of_task, failed("a", 0)])) == [why, again]
    assert list(describe_errors([])) == []


def test_attempts_are_ordered_so_that_an_early_end_covers_every_task() -> None:
    plan = plan_attempts(["a", "b"], 2)
    assert plan == [AttemptId("a", 0), AttemptId("b", 0), AttemptId("a", 1), AttemptId("b", 1)]
    assert len({key.sampling_seed(0) for key in plan}) == 4
    assert plan[0].sampling_seed(0) == AttemptId("a", 0).sampling_seed(0) != plan[0].sampling_seed(1)


def test_finished_attempts_are_not_repeated_and_failed_ones_only_on_request() -> None:
    done = latest_records([graded("a", 0, passed=False), failed("b", 0)])
    plan = plan_attempts(["a", "b"], 2)
    assert remaining_attempts(plan, done) == [AttemptId("a", 1), AttemptId("b", 1)]
    assert remaining_attempts(plan, done, retry_errors=True) == [
        AttemptId("b", 0),
        AttemptId("a", 1),
        AttemptId("b", 1),
    ]


def test_the_latest_record_counts_but_a_failure_does_not_replace_a_verdict() -> None:
    found = latest_records([failed("a", 0), graded("a", 0, passed=True), failed("a", 0, AttemptStage.AGENT)])
    assert found[AttemptId("a", 0)].verdict is not None
    assert latest_records([failed("a", 0), failed("a", 0, AttemptStage.AGENT)])[
        AttemptId("a", 0)
    ].failure == AttemptError(AttemptStage.AGENT, InfraFailure.SANDBOX_START, "no sandbox, within 3 s")


def test_an_attempt_passes_if_all_its_tests_passed_independent_of_its_reward() -> None:
    """SETA counts a full pass with the bonus, whose reward is 2.0, as a failure."""
    done = latest_records([graded("a", 0, passed=True, reward=2.0), graded("a", 1, passed=False, reward=1.0)])
    found = summarise_attempts(ABOUT, plan_attempts(["a"], 2), done, seed=0)
    assert (found.pass_count, found.pass_ratio) == (1, 0.5)
    assert found.reward == RewardStatistics(1.5, 0.5, 1.0, 2.0)


def test_failures_are_counted_by_stage_and_have_no_reward() -> None:
    done = latest_records([graded("a", 0, passed=True), failed("a", 1), failed("b", 0, AttemptStage.EVALUATE)])
    found = summarise_attempts(ABOUT, plan_attempts(["a", "b"], 2), done, seed=0)
    assert (found.total_trajs, found.graded, found.error_count, found.pass_ratio) == (3, 1, 2, 1.0)
    assert found.errors_by_stage == {
        AttemptStage.RESET: 1,
        AttemptStage.AGENT: 0,
        AttemptStage.EVALUATE: 1,
        AttemptStage.CLEAN_UP: 0,
    }
    assert (found.planned, found.complete) == (4, False)
    assert {k: each.tasks for k, each in found.pass_at_k.items()} == {"1": 1}
    assert (found.tokens.prompt, found.tokens.completion, found.tokens.total, found.seconds) == (40, 2, 42, 2.5)


def test_each_family_of_tasks_has_a_result_of_its_own() -> None:
    """GRPO-TCR's validation is a table by data source; attempts without a verdict are in none of its means."""
    code = [replace(graded("c", n, passed=n == 0, reward=1.0 - n), family="taco_code") for n in range(2)]
    done = latest_records([graded("a", 0, passed=True), failed("a", 1), failed("b", 0), *code])
    found = summarise_attempts(ABOUT, plan_attempts(["a", "b", "c"], 2), done, seed=0)
    assert found.families == {
        "family": FamilyResult(tasks=2, graded=1, pass_ratio=1.0, tests_passed=1.0, reward=1.0),
        "taco_code": FamilyResult(tasks=1, graded=2, pass_ratio=0.5, tests_passed=0.5, reward=0.5),
    }


@pytest.mark.parametrize(
    ("agent", "platform", "advice"),
    [
        ("hermes", "url", "--tool-call-parser"),
        ("hermes", "sglang", "agent.format=auto"),
        ("json", "url", "docs/agents.md"),
    ],
)
def test_failures_without_a_tool_call_are_counted_with_what_to_do(agent: str, platform: str, advice: str) -> None:
    """A model whose calls nobody reads would only score 0."""
    about = replace(ABOUT, agent=replace(ABOUT.agent, agent=agent), model_platform=platform)
    silent = [replace(graded("a", 0, passed=False), usage=AttemptUsage(turns)) for turns in (1, 0)]
    attempts = [silent[0], replace(silent[1], number=1), graded("b", 0, passed=False), failed("b", 1)]
    plan = plan_attempts(["a", "b", "c"], 2)
    answered = replace(graded("c", 0, passed=True), usage=AttemptUsage(1))
    found = summarise_attempts(about, plan, latest_records([*attempts, answered]), seed=0)
    assert found.tool_call_warning.startswith(
        "2 of 4 attempts failed without any tool call (1 of them before the first reply): "
    )
    assert advice in found.tool_call_warning
    assert escape(found.tool_call_warning) in render_evaluation_page(found, plan, {})
    noop = summarise_attempts(replace(about, model_platform="none"), plan, latest_records(attempts), seed=0)
    assert noop.tool_call_warning == ""


def test_a_failed_clean_up_leaves_the_verdict() -> None:
    record = replace(
        graded("a", 0, passed=True), failure=AttemptError(AttemptStage.CLEAN_UP, InfraFailure.DEADLINE, "slow")
    )
    found = summarise_attempts(ABOUT, plan_attempts(["a"], 1), latest_records([record]), seed=0)
    assert (found.graded, found.error_count, found.errors_by_stage[AttemptStage.CLEAN_UP]) == (1, 0, 1)


def test_an_evaluation_without_attempts_has_no_score() -> None:
    found = summarise_attempts(ABOUT, plan_attempts(["a"], 2), {}, seed=0)
    assert (found.pass_ratio, found.reward, found.pass_at_k, found.complete) == (None, None, {}, False)


def test_the_results_csv_has_the_columns_that_readers_of_seta_expect() -> None:
    text = render_results_csv(
        plan_attempts(["b", "a"], 2), latest_records([graded("b", 0, passed=True), failed("a", 1)])
    )
    rows = list(csv.DictReader(text.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["task_name"], row["traj_i"]) for row in rows] == [("a", "1"), ("b", "0")]
    assert (rows[0]["reward"], rows[0]["error_stage"], rows[0]["error_message"]) == (
        "", "reset", "no sandbox, within 3 s"
    )  # fmt: skip
    assert (rows[1]["reward"], rows[1]["error"], rows[1]["termination_reason"]) == ("1.0", "", "completed")
    assert (rows[1]["total_tool_calls"], rows[1]["max_parallel_tool_call"], rows[1]["parse_error_count"]) == (
        "3", "2", "1"
    )  # fmt: skip
    assert rows[1]["total_tokens"] == "42"


def test_the_tasks_csv_has_one_line_per_task() -> None:
    done = latest_records([graded("a", 0, passed=True), failed("a", 1), graded("b", 0, passed=False)])
    assert render_tasks_csv(plan_attempts(["b", "a"], 2), done) == "task_id,traj_0,traj_1\na,1.0,error\nb,0.0,\n"


@pytest.mark.parametrize("values", [[], [0.0, 1.0]])
def test_the_reward_spread_is_the_population_standard_deviation(values: list[float]) -> None:
    assert RewardStatistics.from_values(values) == (RewardStatistics(0.5, 0.5, 0.0, 1.0) if values else None)
