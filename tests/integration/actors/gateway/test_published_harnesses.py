"""Published harnesses in a sandbox whose image has a shell and nothing else: no Node, no Python, not even a libc.

If these fail, an agent that others published cannot be trained or evaluated on a task's own image.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.rollout.settings import HistoryMode
from actors.tokens.chat_format import load_tokenizer
from actors.tokens.chat_template import Tokenizer
from launch.data.demo.model import build_demo_model
from launch.settings.data import ModelSettings
from learner.data.sequences import join_sequences
from protocol.trajectory import EpisodeStatus, GroupId, RolloutRequest, Trajectory
from sandbox.docker.engine import DockerEngine
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.tasks.task_grading import GradingLevel
from tests.support.actors.published_harnesses import (
    CALLS,
    CREATE,
    ENDS,
    INSTRUCTION,
    SETTINGS,
    FakeTaskPolicy,
    ToolCall,
    call_text,
    hello_task,
    play_harness,
    typed,
)
from tests.support.runs.two_steps import learner_process, train_two_steps
from tests.support.sandbox.shell_image import write_shell_image

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

REWRITING = {"smolagents"}
"""Harnesses that send a call back as text, and so begin a sequence with each turn."""
MODEL = ModelSettings(layers=1, hidden=32, intermediate=64, heads=1)
POSITIONS = 65_536


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shell_image(docker_engine: SandboxHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """An image of bash, with its libraries, and busybox."""
    archive, name = tmp_path_factory.mktemp("image") / "root.tar", f"longshore/test-shell:{uuid.uuid4().hex}"
    write_shell_image(archive, docker_engine.toolchain / "busybox")
    async with DockerEngine(docker_engine.docker_url) as engine:
        await engine_calls.import_archive(engine, archive, name, 60)
        yield name
        await engine_calls.remove_image(engine, name)


def failed_tests(trajectory: Trajectory) -> list[str]:
    return [test.name for test in trajectory.tests if not test.passed]


class DemoPolicy(NamedTuple):
    """The demo model, untrained: its log-probabilities are nearly those of a uniform choice."""

    folder: Path
    tokenizer: Tokenizer
    logprob: float


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoPolicy:
    folder = tmp_path_factory.mktemp("demo") / "model"
    build_demo_model(folder, MODEL, seed=0, positions=POSITIONS)
    return DemoPolicy(folder, load_tokenizer(str(folder)), -math.log(MODEL.vocab_tokens))


@pytest.fixture(scope="session")
def learner() -> Generator[ProcessPoolExecutor]:
    with learner_process() as process:
        yield process


@pytest.mark.parametrize("name", PUBLISHED_HARNESSES)
async def test_two_steps_are_trained_on_a_task_that_a_published_harness_solves_once_of_two_times(
    docker_engine: SandboxHost, shell_image: str, demo: DemoPolicy, learner: ProcessPoolExecutor, name: str
) -> None:
    group: list[Trajectory] = []
    policies = [FakeTaskPolicy(each, ENDS[name], demo.tokenizer, demo.logprob) for each in (CALLS[name], ENDS[name])]
    for sample, policy in enumerate(policies):
        request = RolloutRequest("run", GroupId(1), sample, len(policies), "hello", seed=0)
        group.append(await play_harness(docker_engine, policy, name, hello_task(shell_image), request=request))
        assert policy.observer.suspicious == [], "its start was taken for the agent's doing"
    assert [each.status for each in group] == [EpisodeStatus.COMPLETED] * 2
    assert [each.reward.total for each in group] == [1.0, 0.0]
    assert [failed_tests(each) for each in group] == [[], ["test_hello"]]
    assert_has_what_was_sampled(group[0], policies[0], is_rewritten=name in REWRITING)
    steps = await train_two_steps(learner, demo.folder, group)
    for report in steps.reports:
        assert report.trained == tuple(each.request.trajectory_id for each in group)
        assert report.metrics["trained_tokens"] == sum(each.sampled_tokens for each in group)
        assert report.metrics["grad_norm"] > 0
    assert len(set(steps.digests)) == 3, "a step changed no weight"


def assert_has_what_was_sampled(trajectory: Trajectory, policy: FakeTaskPolicy, *, is_rewritten: bool) -> None:
    """The two replies of the work are all that is trained, each after the prompt that it was sampled from."""
    first, second = (at for at, prompt in enumerate(policy.prompts) if policy.is_work(prompt))
    assert INSTRUCTION in policy.text_of(policy.prompts[first])
    sequences = join_sequences(trajectory.segments)
    trained = [token for ids, mask in sequences for token in ids[mask == 1].tolist()]
    assert trained == [*policy.replies[first], *policy.replies[second]], "something else is trained, such as a title"
    played = [[*policy.prompts[at], *policy.replies[at]] for at in (first, second)]
    wanted = played if is_rewritten else played[1:]
    assert [ids.tolist() for ids, _ in sequences] == wanted, "the policy does not see what it sampled"


@pytest.mark.parametrize("name", ["pi", "camel"])
async def test_a_published_harness_solves_a_task_in_a_sandbox_of_a_pool_server_behind_a_router(
    docker_engine: SandboxHost, shell_image: str, name: str
) -> None:
    policy = FakeTaskPolicy(CALLS[name])
    trajectory = await play_harness(docker_engine, policy, name, hello_task(shell_image), kind="router")
    assert failed_tests(trajectory) == []
    assert (trajectory.status, trajectory.reward.total) == (EpisodeStatus.COMPLETED, 1.0)
    assert policy.observer.suspicious == []


async def test_a_published_harness_runs_as_the_user_of_the_task(docker_engine: SandboxHost, shell_image: str) -> None:
    policy = FakeTaskPolicy(ToolCall("exec_command", {"cmd": f"{CREATE}; id -u; ls /.sbx"}))
    task = replace(hello_task(shell_image), agent_user="agent")
    trajectory = await play_harness(docker_engine, policy, "codex", task)
    assert failed_tests(trajectory) == []
    assert "\n1000\n" in policy.text_of(policy.prompts[-1])
    (found,) = policy.observer.suspicious
    assert found.startswith("call 1 touched PID 1 or the toolchain")


async def test_what_runs_in_the_terminal_of_terminus_2_is_there_for_live_tests(
    docker_engine: SandboxHost, shell_image: str
) -> None:
    policy = FakeTaskPolicy(typed({"keystrokes": "sleep 777 &\n"}), typed())
    tests = """echo "==== short test summary info ===="
if ps | grep -v grep | grep -q "sleep 777"; then echo "PASSED test_runs"; else echo "FAILED test_runs"; fi
"""
    task = replace(hello_task(shell_image), run_tests=tests, expected_tests=("test_runs",), grading=GradingLevel.LIVE)
    trajectory = await play_harness(docker_engine, policy, "terminus-2", task)
    assert (trajectory.status, trajectory.reward.total) == (EpisodeStatus.COMPLETED, 1.0)


@dataclass
class FakeTalker(FakeTaskPolicy):
    """Calls a tool that prints much until the harness asks for a summary, then ends the task."""

    summaries: int = 0

    def choose_reply(self, prompt: Sequence[int]) -> ToolCall | str:
        last_message = self.text_of(prompt).rpartition("<user>")[2]
        if re.search("detailed summary of the conversation|handoff summary", last_message):
            self.summaries += 1
            return "<summary>What was done.</summary>"
        return self.end if self.summaries else self.call


MUCH = "echo {1..1200}"


@pytest.mark.parametrize(
    ("name", "call", "context_tokens"),
    [
        ("claude-code", ToolCall("Bash", {"command": MUCH, "description": "Print much"}), 120_000),
        ("codex", ToolCall("exec_command", {"cmd": MUCH}), 70_000),
    ],
    ids=["claude-code", "codex"],
)
async def test_a_published_harness_compacts_before_the_policys_window_is_full(
    docker_engine: SandboxHost, shell_image: str, name: str, call: ToolCall, context_tokens: int
) -> None:
    """It would be refused in the middle of its work otherwise."""
    limits = {"context_tokens": context_tokens, "history": HistoryMode.INDIVIDUAL}
    policy, task = FakeTalker(call), hello_task(shell_image)
    trajectory = await play_harness(docker_engine, policy, name, task, SETTINGS.model_copy(update=limits))
    assert (trajectory.status, policy.summaries) == (EpisodeStatus.COMPLETED, 1)
    begun, *_, end = map(len, policy.prompts)
    assert 0.8 * context_tokens < max(map(len, policy.prompts)) < context_tokens
    assert end < begun + 10_000, "it goes on with all of its history"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (f"{CREATE}; kill -KILL $PPID", EpisodeStatus.COMPLETED),
        (f"{CREATE}; kill -STOP $PPID; sleep 600", EpisodeStatus.TIME_LIMIT),
        (f"{CREATE}; while :; do :; done", EpisodeStatus.TIME_LIMIT),
        (f"{CREATE}; setsid sleep 600 > /dev/null 2>&1 & sleep 0.1", EpisodeStatus.COMPLETED),
    ],
    ids=["dies", "hangs", "loops", "leaves a child behind"],
)
async def test_a_harness_that_fails_ends_as_an_outcome_of_its_episode_and_leaves_nothing(
    docker_engine: SandboxHost, shell_image: str, command: str, status: EpisodeStatus
) -> None:
    """The call's tokens take all of the time but some seconds, so that what never ends is stopped soon."""
    policy = FakeTaskPolicy(ToolCall("bash", {"command": command}))
    settings = SETTINGS
    if status is EpisodeStatus.TIME_LIMIT:
        settings = SETTINGS.model_copy(update={"nominal_tokens_per_s": len(call_text(policy.call)) / 280})
    trajectory = await play_harness(docker_engine, policy, "pi", hello_task(shell_image), settings)
    assert trajectory.status is status
    assert trajectory.sampled_tokens == sum(map(len, policy.replies))
    if status is EpisodeStatus.COMPLETED:
        assert failed_tests(trajectory) == []
    assert "test_alone" not in failed_tests(trajectory)
