"""If these fail, the bench of modes compares runs that had not the same work, or says what was not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import cast

import numpy as np
import pytest

from actors.rollout.sandbox_terminal import SandboxTerminal
from launch.bench.training_modes.benchmark import ModeBenchmarkReport, ModesArguments, parse_options
from launch.bench.training_modes.delayed_episodes import delay_first_command
from launch.bench.training_modes.mode_runs import MODES, ModeBenchmarkSetup, ModeRun
from launch.bench.training_modes.run_measurement import IdleShares, RunMeasurement
from launch.bench.training_modes.tool_delays import ToolDelays
from launch.config import load_recipe
from launch.run_records.stored_config import config_tables
from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.staleness import AdmissionMode
from protocol.trajectory import GroupId, RolloutRequest
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task
from tests.support.actors.episodes import local_sandbox, terminal_limits
from tests.support.runs.attempts import make_attempt

ASYNC, SYNC, ONE = AdmissionMode.ASYNC, AdmissionMode.SYNC, AdmissionMode.ONE_STEP_OFF
WAITS = ToolDelays("0/1", median_s=3.0, p95_s=12.0)
TASK = Task("t", "List the files.")
REQUEST = RolloutRequest("run", GroupId(0), sample=1, group_size=8, task="t", seed=0)


# -- waits -------------------------------------------------------------------------------------------------------------


def test_drawn_tool_delays_have_the_requested_median_and_95th_percentile() -> None:
    drawn = [WAITS.draw_delay_s(f"task-{task}", sample) for task in range(2500) for sample in range(8)]
    cuts = quantiles(drawn, n=20)
    assert cuts[9] == pytest.approx(3.0, rel=0.05)
    assert cuts[18] == pytest.approx(12.0, rel=0.05)


def test_a_tool_delay_depends_only_on_task_sample_and_key() -> None:
    again = ToolDelays.from_json(WAITS.to_json())
    assert again.draw_delay_s("a", 0) == WAITS.draw_delay_s("a", 0)
    others = [WAITS.draw_delay_s("a", 1), WAITS.draw_delay_s("b", 0), ToolDelays("0/2", 3.0, 12.0).draw_delay_s("a", 0)]
    assert len({WAITS.draw_delay_s("a", 0), *others}) == 4


class RecordingShell:
    """Notes what it is to run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, command: str, timeout_s: float, on_output: object) -> CommandResult:
        self.ran.append(command)
        return CommandResult("", 0, 0, timed_out=False, ms=1.0, shell_restarted=False)


async def test_only_the_first_command_of_an_episode_waits() -> None:
    shell = RecordingShell()
    terminal = delay_first_command(
        REQUEST,
        SandboxTerminal(local_sandbox(shell, TASK), TASK, terminal_limits(command_s=60.0, observation_chars=100)),
        WAITS,
    )
    for name, command in (("no_such_tool", "ls"), ("shell_exec", "ls"), ("shell_exec", "pwd")):
        await terminal.call(name, {"command": command}, lambda _: None)
    assert shell.ran == [f"sleep {WAITS.draw_delay_s('t', 1):.3f}\nls", "pwd"]


async def test_commands_of_an_evaluation_are_not_delayed() -> None:
    shell = RecordingShell()
    usual = SandboxTerminal(local_sandbox(shell, TASK), TASK, terminal_limits(command_s=60.0, observation_chars=100))
    await delay_first_command(replace(REQUEST, purpose="after"), usual, WAITS).call(
        "shell_exec", {"command": "ls"}, lambda _: None
    )
    assert shell.ran == ["ls"]


# -- arms --------------------------------------------------------------------------------------------------------------


def values(mode: AdmissionMode, starts: int | None = None) -> dict[str, object]:
    ground = ModeBenchmarkSetup("demo", Path("/runs"), 3, ("run.mode='sync'", "learner.lr=1e-4"))
    config = ground.config(ModeRun("1", mode, 9, 4, WAITS, starts))
    return {f"{table}.{key}": value for table, keys in config_tables(config).items() for key, value in keys.items()}


def test_the_arms_differ_only_in_mode_and_episodes_in_flight() -> None:
    all_values = [values(mode) for mode in MODES]
    differing = {key for key in all_values[0] if len({repr(each[key]) for each in all_values}) > 1}
    assert differing == {"run.mode", "rollout.in_flight"}
    assert [each["run.mode"] for each in all_values] == ["async", "sync", "one_step_off"], "a person's own gives way"
    assert [each["rollout.in_flight"] for each in all_values] == [96, 32, 32]
    assert all_values[0]["learner.lr"] == 1e-4
    batch = ("rollout.groups_per_step", "rollout.group_size", "staleness.max_staleness", "run.steps", "run.seed")
    assert [all_values[0][key] for key in batch] == [4, 8, 2, 9, 3]


def test_half_a_batch_is_trained_at_the_learning_rate_divided_by_the_square_root_of_two() -> None:
    learner, recipe = (
        ModeBenchmarkSetup("demo", Path("/runs"), 3).config(ModeRun("1", ASYNC, 9, 4, WAITS)).learner,
        load_recipe("demo"),
    )
    assert recipe.rollout.episodes_per_step == 2 * 32
    assert learner.lr == pytest.approx(recipe.learner.lr / 2**0.5, rel=0.01)
    assert learner.lr_end == pytest.approx((recipe.learner.lr_end or 0) / 2**0.5, rel=0.01)


def test_the_choice_of_the_pilot_run_changes_one_key() -> None:
    usual, chosen = values(SYNC), values(SYNC, 8)
    assert {key for key in usual if usual[key] != chosen[key]} == {"sandbox.start_concurrency"}


# -- report ------------------------------------------------------------------------------------------------------------


def measured(
    seconds: float, passed: Sequence[Sequence[bool]] = (), *, sleep: float = 0.0, failed: Sequence[str] = ()
) -> RunMeasurement:
    """``passed``: of each task, each attempt."""
    return RunMeasurement(
        seconds=seconds,
        after_warm_up_s=seconds / 2,
        episodes=256,
        finished=512,
        sleep_share=sleep,
        idle=IdleShares(engine=seconds / 1000, learner=0.5),
        attempts=[
            make_attempt(f"task-{task}", passed=each) for task, attempts in enumerate(passed) for each in attempts
        ],
        failed=failed,
    )


def report(rounds: dict[AdmissionMode, list[RunMeasurement]]) -> ModeBenchmarkReport:
    return ModeBenchmarkReport(steps=8, starts=4, pilot={2: 1.0, 4: 1.5, 8: 1.25}, rounds=rounds)


def test_the_figure_of_an_arm_is_a_median_and_arms_are_compared_by_repetition() -> None:
    output = report(
        {
            ASYNC: [measured(100), measured(128), measured(64)],
            SYNC: [measured(256, sleep=0.5), measured(256, sleep=0.25), measured(256, sleep=0.375)],
            ONE: [measured(128), measured(128), measured(128)],
        }
    ).as_json()
    assert output["episodes_per_s"] == {"async": 2.56, "sync": 1.0, "one_step_off": 2.0}
    assert output["after_warm_up_per_s"] == {"async": 5.12, "sync": 2.0, "one_step_off": 4.0}
    assert output["async_vs_sync"] == 2.56
    assert output["async_vs_one_step_off"] == 1.28
    assert output["sleep_share"] == 0.375
    assert cast("dict[str, JsonValue]", output["idle"])["async"] == {"engine": 0.1, "learner": 0.5}
    spread = cast("dict[str, JsonValue]", output["spread"])
    assert spread["episodes_per_s"] == {"async": [2.56, 2.0, 4.0], "sync": [1.0] * 3, "one_step_off": [2.0] * 3}
    assert spread["async_vs_sync"] == [2.56, 2.0, 4.0]
    assert output["eval_difference"] is None
    assert output["start_concurrency"] == {"sync": 4, "pilot_episodes_per_s": {"2": 1.0, "4": 1.5, "8": 1.25}}


def test_the_difference_of_evaluations_is_pooled_over_repetitions_and_paired_by_task() -> None:
    dice = np.random.default_rng(0)
    drawn = {mode: dice.random((3, 40, 4)) < chance for mode, chance in ((ASYNC, 0.8), (SYNC, 0.7), (ONE, 0.5))}
    made = report({mode: [measured(1, each.tolist()) for each in repetitions] for mode, repetitions in drawn.items()})
    output = made.as_json()

    by_task = {mode: repetitions.transpose(1, 0, 2).reshape(40, 12).mean(axis=1) for mode, repetitions in drawn.items()}
    paired = by_task[ASYNC] - by_task[SYNC]
    half = 1.959964 * paired.std(ddof=1) / np.sqrt(40)
    difference = cast("dict[str, JsonValue]", output["eval_difference"])
    assert difference["mean"] == pytest.approx(paired.mean(), abs=1e-4)
    assert difference["ci95"] == pytest.approx([paired.mean() - half, paired.mean() + half], abs=1e-4)
    after = cast("dict[str, dict[str, float]]", output["eval_after"])
    assert {mode: after[mode]["n"] for mode in after} == {"async": 480, "sync": 480, "one_step_off": 480}
    assert after["one_step_off"]["pass_at_1"] == pytest.approx(by_task[ONE].mean(), abs=1e-4)
    assert after["one_step_off"]["stderr"] == pytest.approx(by_task[ONE].std(ddof=1) / np.sqrt(40), abs=1e-4)
    assert made.passed


def test_a_policy_that_may_have_learned_less_fails_the_bench_and_a_slow_arm_does_not() -> None:
    slow = {ASYNC: [measured(500)], SYNC: [measured(100)], ONE: [measured(100)]}
    assert report(slow).passed
    worse = [[True, False]] * 10, [[True, True]] * 10, [[True, True]] * 10
    made = report({mode: [measured(100, each)] for mode, each in zip((ASYNC, SYNC, ONE), worse, strict=True)})
    (line,) = made.failures
    assert "-0.500" in line
    assert not made.passed


def test_a_failed_check_of_a_run_fails_the_bench() -> None:
    made = report({ASYNC: [measured(1)], SYNC: [measured(1), measured(1, failed=["3 containers"])], ONE: [measured(1)]})
    assert made.failures == ["sync, repetition 2: 3 containers"]


# -- options -----------------------------------------------------------------------------------------------------------


def arguments(*words: str) -> ModesArguments:
    return parse_arguments(ModesArguments, words, "bench")


def test_the_default_options_are_those_of_the_published_figures() -> None:
    made = parse_options(arguments())
    assert (made.recipe, made.steps, made.repetitions, made.starts) == ("demo", 8, 3, (2, 4, 8))
    assert (made.median_s, made.p95_s) == (3.0, 12.0)
    tasks = (
        ModeBenchmarkSetup(made.recipe, Path("/runs"), 0).config(ModeRun("1", SYNC, 9, made.attempts, WAITS)).evaluation
    )
    assert 18 * tasks.tasks_per_family * tasks.attempts >= 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "argument --steps: must be at least 1"),
        (["--attempts", "-1"], "--attempts"),
        (["--starts", "two"], "--starts two"),
        (["--starts", "0"], "--starts 0"),
        (["--median-s", "12", "--p95-s", "3"], "0 < median-s < p95-s"),
        (["--median-s", "nan"], "argument --median-s: must be a finite number"),
    ],
)
def test_invalid_options_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_options(arguments(*words))


def test_an_output_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match="is not an empty folder"):
        parse_options(arguments("--output", str(tmp_path)))
