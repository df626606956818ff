"""If these fail, a replay does something else than was done, and a sound task is called flaky, or a flaky one sound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from actors.agents.choice import agent_of
from actors.chat_policy import shortened_by_length
from actors.episode import EpisodeSettings, SandboxGone, ToolOutcome
from launch.config import RunConfig
from launch.evaluate.attempts import Failure, Stage, Verdict
from launch.evaluate.setting import Setting
from launch.recorded.of_run import recorded
from launch.recorded.seams import Seams
from launch.recorded.trajectory import Origin, Recorded
from launch.replay.__main__ import main
from launch.replay.script import Observation, Replaying, replaying
from launch.replay.telling import lines, told
from launch.replay.verdicts import Again, Judged, agrees, changed_tests
from protocol.cli.exits import EXIT_USER, main_guard
from protocol.trajectory import Status, TestResult
from sandbox.tasks.task import Task
from tests.support.observers import FakeObserver
from tests.support.recorded import LIMITS, Terminal, call, chat_of, config, trajectory, write_run

TASK = Task(id="t", instruction="Do t.")
HERMES = [f"First.\n{call('ls')}\n{call('false')}", call("touch x"), "<tool_call>{</tool_call>", "done"]
BASH = ["```bash\nls\n```", "no block", "```bash\ntouch x\n```"]


def of_texts(
    run: RunConfig,
    texts: list[str],
    settings: EpisodeSettings = LIMITS,
    see: Callable[[Terminal], None] = lambda terminal: None,
) -> Recorded:
    chat = chat_of(run)
    made = trajectory(run, texts, settings=settings, see=see)
    return recorded("demo-1/t", made, agent_of(run.agent.settings), chat, Seams(chat))


def replayed(run: RunConfig, found: Recorded, terminal: Terminal) -> tuple[Replaying, Status | None]:
    assert found.verdict is not None
    origin = Origin("runs/demo-1", "m", agent_of(run.agent.settings), Setting(run, "", Path()), {}, shortened_by_length)
    playing = replaying(found, origin, TASK, terminal, then=found.verdict, observer=FakeObserver(), settings=LIMITS)
    try:
        return playing, asyncio.run(playing.run())
    except SandboxGone:
        return playing, None


@pytest.mark.parametrize(("kind", "texts"), [("hermes", HERMES), ("bash", BASH)])
def test_the_same_is_done_in_the_same_order_and_seen(kind: str, texts: list[str]) -> None:
    run = config(f"agent.kind={kind}")
    commands: list[str] = []
    settings = replace(LIMITS, max_turns=len(texts))
    found = of_texts(run, texts, settings=settings, see=lambda terminal: commands.extend(terminal.calls))
    terminal = Terminal()
    playing, status = replayed(run, found, terminal)
    assert found.verdict is not None
    assert terminal.calls == commands
    assert status is found.verdict.status
    assert [each.turn for each in playing.script.observations] == list(range(3))
    assert all(each.same for each in playing.script.observations)
    assert playing.script.observations[0].commands == (("ls", "false") if kind == "hermes" else ("ls",))


@dataclass
class Changed(Terminal):
    """Says something else of one command."""

    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolOutcome:
        outcome = await super().call(name, arguments, on_output)
        return replace(outcome, text="disk full", exit_code=1) if self.calls[-1] == "touch x" else outcome


def test_what_is_seen_now_stands_beside_what_was_seen_then() -> None:
    run = config("agent.kind=hermes")
    playing, _ = replayed(run, of_texts(run, HERMES), Changed())
    (different,) = [each for each in playing.script.observations if not each.same]
    assert (different.turn, different.commands, different.now) == (1, ("touch x",), "disk full")
    assert different.then == "touch x\nsays <|3|>\n"
    assert (different.exit_code, different.exit_code_now) == (0, 1)


def test_what_was_not_run_for_want_of_time_is_not_run_now() -> None:
    """Else a replay passes tests that the agent had no time to pass."""
    run = config("agent.kind=hermes")
    late = replace(LIMITS, time_limit_s=0.008)  # each call takes 5 ms
    found = of_texts(run, [f"{call('ls')}\n{call('cat a')}\n{call('touch x')}", "done"], settings=late)
    assert found.verdict is not None
    assert (found.verdict.status, found.verdict.passed, found.replies[0].ran) == (Status.TIME_LIMIT, False, 2)
    terminal = Terminal()
    _, status = replayed(run, found, terminal)
    assert terminal.calls == ["ls", "cat a"]
    assert status is Status.TIME_LIMIT


def test_an_answer_that_came_too_late_is_not_given_now() -> None:
    run = config("agent.kind=json")
    stop = json.dumps({"action": {"type": "stop", "params": {"answers": {"command": "touch x"}}}})
    found = of_texts(run, [stop], settings=replace(LIMITS, nominal_tokens_per_s=0.01))
    assert found.verdict is not None
    assert (found.verdict.status, found.verdict.passed) == (Status.TIME_LIMIT, False)
    terminal = Terminal()
    _, status = replayed(run, found, terminal)
    assert (terminal.calls, status) == ([], Status.TIME_LIMIT)
    in_time, terminal = of_texts(run, [stop]), Terminal()
    assert replayed(run, in_time, terminal)[1] is Status.COMPLETED
    assert len(terminal.calls) == 1


def test_a_limit_that_ended_it_then_is_how_it_ends_now() -> None:
    run = config("agent.kind=hermes")
    found = of_texts(run, [call("ls"), call("touch x")], settings=replace(LIMITS, max_turns=2))
    playing, status = replayed(run, found, Terminal())
    assert status is Status.TURN_LIMIT
    assert len(playing.turns) == 2


@dataclass
class Dying(Terminal):
    async def call(self, name: str, arguments: dict[str, object], on_output: object) -> ToolOutcome:
        raise SandboxGone("PID 1 is gone")


def test_a_sandbox_that_dies_in_one_of_the_two_only_is_told_apart() -> None:
    run = config("agent.kind=hermes")
    found = of_texts(run, HERMES)
    assert replayed(run, found, Dying())[1] is None
    assert found.verdict is not None
    gone = replace(found, verdict=replace(found.verdict, status=Status.SANDBOX_DESTROYED))
    assert replayed(run, gone, Terminal())[1] is Status.COMPLETED


PASSED = Verdict(True, 1.0, 1.0, Status.COMPLETED, tests=(TestResult("a", True), TestResult("b", True)))
FAILED = Verdict(False, 0.0, 0.5, Status.COMPLETED, tests=(TestResult("a", True), TestResult("b", False)))
SAME, OTHER = Observation(0, ("ls",), "x", "x"), Observation(2, ("date",), "Monday\nx", "Tuesday\nx")


def again(verdict: Verdict | None, *observations: Observation, number: int = 0) -> Again:
    failure = None if verdict else Failure(Stage.RESET, "SandboxStartError", "no sandbox")
    return Again(number, verdict, failure, observations, 1.0)


@pytest.mark.parametrize(
    ("replays", "same", "flaky", "says"),
    [
        ((again(PASSED, SAME), again(PASSED, OTHER)), True, False, "the verdict is the same"),
        ((again(FAILED, SAME),), False, False, "the agent saw the same and the verdict is another: look at the tests"),
        ((again(PASSED, SAME), again(FAILED, SAME)), False, True, "look at the tests"),
        ((again(FAILED, SAME, OTHER),), False, False, "from turn 2 on"),
        ((again(None), again(PASSED)), False, False, "replay it once more"),
    ],
)
def test_what_replays_mean(replays: tuple[Again, ...], same: bool, flaky: bool, says: str) -> None:
    judged = Judged(PASSED, replays)
    assert (judged.same, judged.flaky) == (same, flaky)
    assert says in judged.meaning


def test_a_verdict_agrees_when_its_tests_and_its_reward_do() -> None:
    swapped = replace(FAILED, tests=(TestResult("a", False), TestResult("b", True)))
    assert not agrees(FAILED, swapped)
    assert agrees(replace(FAILED, tests=()), swapped)
    assert not agrees(PASSED, replace(PASSED, reward=0.9))
    assert agrees(PASSED, replace(PASSED, reward=1.0 + 1e-9))
    assert changed_tests(PASSED, FAILED) == ["b passed then, and failed now"]
    assert changed_tests(replace(PASSED, tests=()), FAILED) == []


def test_a_person_reads_what_changed_and_a_script_has_it_too() -> None:
    found = Recorded("demo-1/x", "t", (), (), PASSED)
    judged = Judged(PASSED, (again(FAILED, SAME, OTHER), again(PASSED, number=1)))
    text = "\n".join(lines(found, judged, task_changed=True))
    for part in (
        "demo-1/x: task t, passed, reward 1, completed then",
        "its prompt is another now",
        "1: ANOTHER verdict (failed, reward 0, completed) · 1 of 2 observations differ",
        "b passed then, and failed now",
        "turn 2: date",
        "-Monday",
        "+Tuesday",
        "1 of 2 replays agree; they differ among themselves",
    ):
        assert part in text
    said = json.loads(json.dumps(told(found, judged, task_changed=False)))
    assert (said["agree"], said["times"], said["same"], said["flaky"]) == (1, 2, False, True)
    assert said["replays"][0]["differences"][0]["then"] == "Monday\nx"
    assert said["replays"][0]["changed_tests"] == ["b passed then, and failed now"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{run}/train-g000000-s00", "--set", "learner.lr=1"], "leave --set out"),
        (["{run}", "--times", "2"], "write RUN/ID"),
        (["{run}/train-g000009-s00"], "has no trajectory 'train-g000009-s00'"),
        (["{run}/../nowhere/a/b"], "names no trajectory"),
        (["{run}/train-g000000-s00"], "is gone, the task of this trajectory"),
        (["{run}/train-g000000-s00", "--times", "0"], "no whole number of 1 to 10000"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = config("agent.kind=hermes")
    folder = write_run(tmp_path / "demo-1", run, [trajectory(run, ["done"])])
    asked = [word.format(run=folder) for word in words]
    assert main_guard(lambda: main(asked)) == EXIT_USER
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
