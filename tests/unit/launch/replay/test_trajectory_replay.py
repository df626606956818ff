"""If these fail, a replay does something else than was done, and a sound task is called flaky, or a flaky one sound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from actors.agents.registry import make_agent
from actors.rollout.chat_policy import truncate_by_length
from actors.rollout.sandbox_terminal import with_opening_page
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import SandboxDestroyedByAgent, ToolCallResult
from launch.config import RunConfig
from launch.replay.__main__ import COMMAND
from launch.replay.formatting import build_replay_report, format_replay_lines
from launch.replay.scripted_policy import ObservationComparison, ReplayEpisode, create_replay_episode
from launch.replay.trajectory_replay import asks_for_task
from launch.replay.verdict_comparison import ReplayAttempt, ReplayComparison, describe_changed_tests, verdicts_agree
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory, TrajectoryOrigin
from launch.trajectory_reader.run_source import build_recorded_trajectory
from launch.trajectory_reader.template_inversion import TemplateInverter
from protocol.cli.exit_codes import EXIT_USER, main_guard
from protocol.evaluation import AttemptError, AttemptStage, AttemptVerdict
from protocol.trajectory import EpisodeStatus, InfraFailure, TestResult
from sandbox.tasks.task import Task
from tests.support.actors.observers import FakeObserver
from tests.support.runs.recorded_trajectories import (
    LIMITS,
    CountingTerminal,
    make_chat_format,
    make_run_config,
    record_trajectory,
    tool_call,
    write_run,
)

TASK = Task(id="t", instruction="Do t.")
HERMES = [f"First.\n{tool_call('ls')}\n{tool_call('false')}", tool_call("touch x"), "<tool_call>{</tool_call>", "done"]
BASH = ["```bash\nls\n```", "no block", "```bash\ntouch x\n```"]


def of_texts(
    run: RunConfig,
    texts: list[str],
    settings: EpisodeSettings = LIMITS,
    see: Callable[[CountingTerminal], None] = lambda terminal: None,
) -> RecordedTrajectory:
    chat = make_chat_format(run)
    made = record_trajectory(run, texts, settings=settings, inspect_terminal=see)
    return build_recorded_trajectory("demo-1/t", made, make_agent(run.agent.make_spec()), chat, TemplateInverter(chat))


def replayed(
    run: RunConfig, found: RecordedTrajectory, terminal: CountingTerminal
) -> tuple[ReplayEpisode, EpisodeStatus | None]:
    assert found.verdict is not None
    origin = TrajectoryOrigin(
        "runs/demo-1",
        "m",
        make_agent(run.agent.make_spec()),
        run,
        {},
        truncate_by_length,
    )
    playing = create_replay_episode(
        found, origin, terminal, recorded_verdict=found.verdict, observer=FakeObserver(), settings=LIMITS
    )
    try:
        return playing, asyncio.run(playing.play(TASK))
    except SandboxDestroyedByAgent:
        return playing, None


def test_a_task_of_the_web_has_not_changed_because_its_first_page_has():
    agent = make_agent(make_run_config("agent.kind=json", "agent.toolset=browser").agent.make_spec())
    task = replace(TASK, start_url="http://wiki:8000/")
    asked = agent.opening_messages(with_opening_page(task, "URL: http://wiki:8000/\nheading 1"))
    assert asks_for_task(asked, task, agent)
    assert asks_for_task(agent.opening_messages(task), task, agent)
    assert not asks_for_task(asked, replace(task, instruction="Do u."), agent)
    assert not asks_for_task(asked, TASK, agent)
    assert not asks_for_task(asked[:1], task, agent)


@pytest.mark.parametrize(("kind", "texts"), [("hermes", HERMES), ("bash", BASH)])
def test_a_replay_runs_the_same_commands_in_order_and_sees_the_same_output(kind: str, texts: list[str]) -> None:
    run = make_run_config(f"agent.kind={kind}")
    commands: list[str] = []
    settings = LIMITS.model_copy(update={"max_turns": len(texts)})
    found = of_texts(run, texts, settings=settings, see=lambda terminal: commands.extend(terminal.calls))
    terminal = CountingTerminal()
    playing, status = replayed(run, found, terminal)
    assert found.verdict is not None
    assert terminal.calls == commands
    assert status is found.verdict.status
    assert [each.turn for each in playing.script.observations] == list(range(3))
    assert all(each.same for each in playing.script.observations)
    assert playing.script.observations[0].commands == (("ls", "false") if kind == "hermes" else ("ls",))


@dataclass
class Changed(CountingTerminal):
    """Says something else of one command."""

    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolCallResult:
        outcome = await super().call(name, arguments, on_output)
        return replace(outcome, text="disk full", exit_code=1) if self.calls[-1] == "touch x" else outcome


def test_a_different_observation_is_reported_with_the_recorded_one() -> None:
    run = make_run_config("agent.kind=hermes")
    playing, _ = replayed(run, of_texts(run, HERMES), Changed())
    (different,) = [each for each in playing.script.observations if not each.same]
    assert (different.turn, different.commands, different.replayed_output) == (1, ("touch x",), "disk full")
    assert different.recorded_output == "touch x\nsays <|3|>\n"
    assert (different.recorded_exit_code, different.replayed_exit_code) == (0, 1)


def test_calls_that_the_time_limit_prevented_are_not_replayed() -> None:
    """Without this, a replay passes tests that the agent had no time to pass."""
    run = make_run_config("agent.kind=hermes")
    late = LIMITS.model_copy(update={"time_limit_s": 0.008})  # each call takes 5 ms
    found = of_texts(run, [f"{tool_call('ls')}\n{tool_call('cat a')}\n{tool_call('touch x')}", "done"], settings=late)
    assert found.verdict is not None
    assert (found.verdict.status, found.verdict.passed, found.replies[0].calls_run) == (
        EpisodeStatus.TIME_LIMIT,
        False,
        2,
    )
    terminal = CountingTerminal()
    _, status = replayed(run, found, terminal)
    assert terminal.calls == ["ls", "cat a"]
    assert status is EpisodeStatus.TIME_LIMIT


def test_an_answer_that_came_too_late_is_not_replayed() -> None:
    run = make_run_config("agent.kind=json")
    stop = json.dumps({"action": {"type": "stop", "params": {"answers": {"command": "touch x"}}}})
    found = of_texts(run, [stop], settings=LIMITS.model_copy(update={"nominal_tokens_per_s": 0.01}))
    assert found.verdict is not None
    assert (found.verdict.status, found.verdict.passed) == (EpisodeStatus.TIME_LIMIT, False)
    terminal = CountingTerminal()
    _, status = replayed(run, found, terminal)
    assert (terminal.calls, status) == ([], EpisodeStatus.TIME_LIMIT)
    in_time, terminal = of_texts(run, [stop]), CountingTerminal()
    assert replayed(run, in_time, terminal)[1] is EpisodeStatus.COMPLETED
    assert len(terminal.calls) == 1


def test_a_replay_ends_at_the_limit_that_ended_the_recorded_episode() -> None:
    run = make_run_config("agent.kind=hermes")
    found = of_texts(run, [tool_call("ls"), tool_call("touch x")], settings=LIMITS.model_copy(update={"max_turns": 2}))
    playing, status = replayed(run, found, CountingTerminal())
    assert status is EpisodeStatus.TURN_LIMIT
    assert len(playing.turns) == 2


@dataclass
class Dying(CountingTerminal):
    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolCallResult:
        raise SandboxDestroyedByAgent("PID 1 is gone")


def test_a_sandbox_that_dies_only_in_the_replay_or_only_in_the_recording_is_noticed() -> None:
    run = make_run_config("agent.kind=hermes")
    found = of_texts(run, HERMES)
    assert replayed(run, found, Dying())[1] is None
    assert found.verdict is not None
    gone = replace(found, verdict=replace(found.verdict, status=EpisodeStatus.SANDBOX_DESTROYED))
    assert replayed(run, gone, CountingTerminal())[1] is EpisodeStatus.COMPLETED


PASSED = AttemptVerdict(True, 1.0, 1.0, EpisodeStatus.COMPLETED, tests=(TestResult("a", True), TestResult("b", True)))
FAILED = AttemptVerdict(False, 0.0, 0.5, EpisodeStatus.COMPLETED, tests=(TestResult("a", True), TestResult("b", False)))
SAME, OTHER = (
    ObservationComparison(0, ("ls",), "x", "x"),
    ObservationComparison(2, ("date",), "Monday\nx", "Tuesday\nx"),
)


def again(verdict: AttemptVerdict | None, *observations: ObservationComparison, number: int = 0) -> ReplayAttempt:
    failure = None if verdict else AttemptError(AttemptStage.RESET, InfraFailure.SANDBOX_START, "no sandbox")
    return ReplayAttempt(number, verdict, failure, observations, 1.0)


@pytest.mark.parametrize(
    ("replays", "same", "flaky", "says"),
    [
        ((again(PASSED, SAME), again(PASSED, OTHER)), True, False, "the verdict is the same"),
        (
            (again(FAILED, SAME),),
            False,
            False,
            "the agent observed the same but the verdict differs: look at the tests",
        ),
        ((again(PASSED, SAME), again(FAILED, SAME)), False, True, "look at the tests"),
        ((again(FAILED, SAME, OTHER),), False, False, "from turn 2 on"),
        ((again(None), again(PASSED)), False, False, "replay once more"),
    ],
)
def test_the_comparison_of_replays_is_explained(
    replays: tuple[ReplayAttempt, ...], same: bool, flaky: bool, says: str
) -> None:
    judged = ReplayComparison(PASSED, replays)
    assert (judged.all_agree, judged.flaky) == (same, flaky)
    assert says in judged.explanation


def test_a_verdict_agrees_when_its_tests_and_its_reward_do() -> None:
    swapped = replace(FAILED, tests=(TestResult("a", False), TestResult("b", True)))
    assert not verdicts_agree(FAILED, swapped)
    assert verdicts_agree(replace(FAILED, tests=()), swapped)
    assert not verdicts_agree(PASSED, replace(PASSED, reward=0.9))
    assert verdicts_agree(PASSED, replace(PASSED, reward=1.0 + 1e-9))
    assert describe_changed_tests(PASSED, FAILED) == ["b: passed recorded, failed replayed"]
    assert describe_changed_tests(replace(PASSED, tests=()), FAILED) == []


def test_changes_are_printed_as_text_and_as_json() -> None:
    found = RecordedTrajectory("demo-1/x", "t", (), (), PASSED)
    judged = ReplayComparison(PASSED, (again(FAILED, SAME, OTHER), again(PASSED, number=1)))
    text = "\n".join(format_replay_lines(found, judged, task_changed=True))
    for part in (
        "demo-1/x: task t, recorded as passed, reward 1, completed",
        "its prompt is different",
        "1: DIFFERENT verdict (failed, reward 0, completed) · 1 of 2 observations differ",
        "b: passed recorded, failed replayed",
        "turn 2: date",
        "-Monday",
        "+Tuesday",
        "1 of 2 replays agree; the replays differ from each other",
    ):
        assert part in text
    output = json.loads(json.dumps(build_replay_report(found, judged, task_changed=False)))
    assert (output["agree"], output["times"], output["same"], output["flaky"]) == (1, 2, False, True)
    assert output["replays"][0]["differences"][0]["recorded"] == "Monday\nx"
    assert output["replays"][0]["changed_tests"] == ["b: passed recorded, failed replayed"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{run}/train-g000000-s00", "--set", "learner.lr=1"], "leave it out"),
        (["{run}", "--times", "2"], "write RUN/ID"),
        (["{run}/train-g000009-s00"], "has no trajectory 'train-g000009-s00'"),
        (["{run}/../nowhere/a/b"], "is not a trajectory"),
        (["{run}/train-g000000-s00"], "the task of this trajectory, is missing"),
        (["{run}/train-g000000-s00", "--times", "0"], "--times: must be at least 1, not '0'"),
        (["{run}/train-g000000-s00", "--times", "10001"], "--times: must be at most 10000"),
    ],
)
def test_an_invalid_replay_is_refused_in_one_line(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run_config("agent.kind=hermes")
    folder = write_run(tmp_path / "demo-1", run, [record_trajectory(run, ["done"])])
    arguments = [word.format(run=folder) for word in words]
    assert main_guard(lambda: COMMAND.call(arguments)) == EXIT_USER
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
