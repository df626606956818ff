"""If these fail, a harness's episode is charged for an engine's failure or delay, or nothing of it is trained."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from actors.engines.messages import EngineUnavailable
from actors.rewards.composite import RewardFunction
from actors.rollout.harness import HarnessRun, harness_environment, run_harness_episode
from actors.rollout.sandbox_terminal import HarnessExit
from actors.rollout.settings import EpisodeSettings
from actors.rollout.terminal import EpisodeGrade, SandboxDestroyedByAgent
from protocol.errors import InfraError
from protocol.trajectory import EpisodeStatus, TestResult, Trajectory, TurnKind
from sandbox.tasks.task import Task, TaskStep
from tests.support.actors.episodes import BINARY_REWARD, REQUEST, episode_context
from tests.support.actors.gateways import GatewayClients, open_gateway
from tests.support.actors.observers import FakeObserver, FakeReward

SETTINGS = EpisodeSettings(
    max_turns=3,
    max_malformed=2,
    max_new_tokens=100,
    context_tokens=400,
    temperature=0.7,
    nominal_tokens_per_s=50.0,
    time_limit_s=60.0,
)
TASK = Task(id="t", instruction='it\'s "a" $task', expected_tests=("a", "b"))


@dataclass
class FakePlace:
    """Runs ``agent`` in place of the command; passes the first of two tests, in each of the ``steps``."""

    agent: Callable[[Callable[[], float]], Awaitable[HarnessExit]]
    command: str = ""
    steps: int = 1
    recorded: list[str] = field(default_factory=list[str])
    """The commands of its calls."""

    async def run_agent(
        self, command: str, left_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> HarnessExit:
        self.command = command
        return await self.agent(left_s)

    def record_commands(self, commands: Iterable[str]) -> None:
        self.recorded.extend(commands)

    async def grade(self, last_reply: str) -> EpisodeGrade:
        self.steps -= 1
        return EpisodeGrade((TestResult("a", True), TestResult("b", False)), 0.5, False, 2.0, goes_on=self.steps > 0)


@asynccontextmanager
async def reach(made: GatewayClients, task: Task) -> AsyncGenerator[dict[str, str]]:
    yield harness_environment(made.gateway.url, made.gateway.api_key(made.session), "policy", task, SETTINGS)


@dataclass
class HarnessScene:
    """One episode of a harness, whose parts a test may exchange before it runs."""

    made: GatewayClients
    place: FakePlace
    clock: Callable[[], float]
    command: str = "agent --go"
    task: Task = TASK
    reward: RewardFunction = BINARY_REWARD

    async def run(self) -> Trajectory:
        session, observer = self.made.session, FakeObserver()
        context = episode_context(SETTINGS, self.task, reward=self.reward, observer=observer)
        run = HarnessRun(session, self.place, self.command, partial(reach, self.made), SETTINGS, observer, self.clock)
        return await run_harness_episode(context, run, session)


def episode(made: GatewayClients, place: FakePlace, clock: Callable[[], float] = lambda: 0.0) -> HarnessScene:
    return HarnessScene(made, place, clock)


def asking(made: GatewayClients, calls: int, ran: HarnessExit) -> FakePlace:
    """An agent that asks so often, refused or not, and ends."""

    async def agent(_: Callable[[], float]) -> HarnessExit:
        for number in range(calls):
            messages = [{"role": "user", "content": f"{number}"}]
            try:
                await made.openai.chat.completions.create(model="m", messages=messages)
            except openai.APIStatusError as error:
                return ran._replace(output=str(error))
        return ran

    return FakePlace(agent)


@pytest.mark.parametrize(
    ("ran", "limits", "status"),
    [
        (HarnessExit(0, "bye"), {}, EpisodeStatus.COMPLETED),
        (HarnessExit(3, "bye"), {}, EpisodeStatus.COMPLETED),
        (HarnessExit(None, "bye", timed_out=True), {}, EpisodeStatus.TIME_LIMIT),
        (HarnessExit(1, "bye"), {"max_turns": 1}, EpisodeStatus.TURN_LIMIT),
        (HarnessExit(1, "bye"), {"total_tokens": 30}, EpisodeStatus.CONTEXT_LIMIT),
    ],
)
async def test_a_harness_exit_is_a_policy_outcome_and_its_requests_form_the_trajectory(
    ran: HarnessExit, limits: dict[str, int], status: EpisodeStatus
) -> None:
    async with open_gateway("one\x01", "two\x01", **limits) as made:
        trajectory = await episode(made, asking(made, 2, ran)).run()
    assert trajectory.status is status
    assert (trajectory.reward.total, trajectory.reward.parts["pass_ratio"]) == (0.0, 0.5)
    assert trajectory.sampled_tokens == sum(len(reply.token_ids) for reply in made.engine.replies) > 0
    assert trajectory.engine == "engine-0"


async def test_a_harness_is_started_for_each_step_with_its_instruction_within_limits_of_all_steps() -> None:
    started: list[tuple[str, float]] = []
    now = 0.0

    async def agent(left_s: Callable[[], float]) -> HarnessExit:
        nonlocal now
        now += 1.0
        started.append((place.command, left_s()))
        await made.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        return HarnessExit(0, "")

    place = FakePlace(agent, steps=2)
    first, second, third = (TaskStep(name, f"make {name}", agent_timeout_s=40.0) for name in ("one", "two", "three"))
    task = replace(TASK, steps=(first, replace(second, agent_timeout_s=90.0), third))
    async with open_gateway("one\x01", "two\x01", clock=lambda: now) as made:
        trajectory = await replace(episode(made, place, lambda: now), task=task).run()
        with pytest.raises(openai.PermissionDeniedError):
            await made.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "late"}])
    sampled_s = [len(reply.token_ids) / SETTINGS.nominal_tokens_per_s for reply in made.engine.replies]
    assert ["make one" in started[0][0], "make two" in started[1][0], len(started)] == [True, True, 2]
    assert [left_s for _, left_s in started] == [39.0, pytest.approx(60.0 - 2.0 - sampled_s[0])]
    assert len(trajectory.segments) == 2, "the second run continues no conversation"
    assert trajectory.sampled_tokens == sum(len(reply.token_ids) for reply in made.engine.replies)
    assert trajectory.timings_ms["tool"] == 2000.0


async def test_all_commands_of_a_step_are_read_for_signs_of_cheating_though_an_earlier_title_is_no_work() -> None:
    def call(command: str) -> str:
        return f'<tool_call>{{"name": "shell", "arguments": {{"command": "{command}"}}}}</tool_call>\x01'

    async def ask(system: str, step: str, tools: list[ChatCompletionToolParam]) -> None:
        await made.openai.chat.completions.create(
            model="m",
            messages=[{"role": "system", "content": system}, {"role": "user", "content": step}],
            tools=tools or openai.omit,
        )

    async def agent(_: Callable[[], float]) -> HarnessExit:
        if place.steps == 2:
            await ask("Write a title.", "one", [])
        else:
            for seen in ("", "", "x"):
                await ask("Work.", f"two {seen}", [{"type": "function", "function": {"name": "shell"}}])
        return HarnessExit(0, "")

    place = FakePlace(agent, steps=2)
    task = replace(TASK, steps=(TaskStep("one", "one"), TaskStep("two", "two")))
    async with open_gateway("A title\x01", call("cat /tests/secret"), call("ls"), "Done.\x01") as made:
        await replace(episode(made, place), task=task).run()
    assert place.recorded == ["cat /tests/secret", "ls"]


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (HarnessExit(127, "no such program"), "exit code 127, 'no such program'"),
        (HarnessExit(None, "starting", timed_out=True), r"its time of \d+ s was up, 'starting'"),
    ],
)
async def test_a_harness_that_got_no_reply_is_an_infrastructure_failure(ended: HarnessExit, why: str) -> None:
    async with open_gateway() as made:
        with pytest.raises(InfraError, match=f"without a reply from the policy: {why}"):
            await episode(made, asking(made, 0, ended)).run()


async def test_an_engine_failure_under_a_harness_is_not_a_policy_outcome() -> None:
    async with open_gateway("one\x01", EngineUnavailable("gone")) as made:
        with pytest.raises(EngineUnavailable, match="gone"):
            await episode(made, asking(made, 2, HarnessExit(1, ""))).run()


async def test_an_agent_that_destroys_its_sandbox_gets_a_failed_tasks_reward() -> None:
    async def destroy(_: Callable[[], float]) -> HarnessExit:
        await made.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
        raise SandboxDestroyedByAgent("PID 1 is gone")

    async with open_gateway("one\x01") as made:
        trajectory = await episode(made, FakePlace(destroy)).run()
    assert (trajectory.status, trajectory.sampled_tokens) == (EpisodeStatus.SANDBOX_DESTROYED, 4)
    assert [test.passed for test in trajectory.tests] == [False, False]


async def test_time_waiting_for_the_policy_is_not_charged_but_sampled_tokens_are() -> None:
    now = [0.0]

    async def agent(left_s: Callable[[], float]) -> HarnessExit:
        now[0] += 10.0
        seconds_left.append(left_s())
        made.engine.on_request = wait
        await made.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
        seconds_left.append(left_s())
        return HarnessExit(0, "")

    def wait() -> None:
        now[0] += 1000.0

    seconds_left: list[float] = []
    async with open_gateway("x" * 49 + "\x01", clock=lambda: now[0]) as made:
        await episode(made, FakePlace(agent), lambda: now[0]).run()
    assert seconds_left == pytest.approx([50.0, 49.0])


async def test_the_command_gets_instruction_and_key_verbatim_in_its_environment() -> None:
    async with open_gateway("one\x01") as made:
        place = asking(made, 1, HarnessExit(0, ""))
        environment = episode(made, place)
        environment.command = 'printf "%s|%s" "$LONGSHORE_INSTRUCTION" "$OPENAI_API_KEY"'
        await environment.run()
        output = await asyncio.to_thread(subprocess.check_output, ["bash", "-c", place.command], text=True)
        assert output == f"{TASK.instruction}|{made.gateway.api_key(made.session)}"


@pytest.mark.parametrize(("purpose", "temperature"), [("train", 0.7), ("before", 1.0)])
def test_only_training_is_sampled_at_the_runs_temperature(purpose: str, temperature: float) -> None:
    sampling = episode_context(SETTINGS, TASK, request=replace(REQUEST, purpose=purpose)).sampling
    assert sampling.temperature == temperature


async def test_a_reward_receives_harness_turns_in_order_and_each_turn_gets_its_reward() -> None:
    """Otherwise the reward of one agent's turn would be given to another's."""
    seen = FakeReward()
    call = '<tool_call>{"name": "shell", "arguments": {"command": "ls"}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}]

    async def agent(_: Callable[[], float]) -> HarnessExit:
        main = [{"role": "user", "content": "main"}]
        first = await made.openai.chat.completions.create(model="m", messages=main, tools=tools)
        await made.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "other"}])
        answer = {"role": "tool", "content": "out", "tool_call_id": first.choices[0].message.tool_calls[0].id}
        goes_on = [*main, first.choices[0].message.model_dump(exclude_none=True), answer]
        await made.openai.chat.completions.create(model="m", messages=goes_on, tools=tools)
        return HarnessExit(0, "bye")

    texts = [f"<think>hm</think>I look. {call}\x01", "helper\x01", "\\boxed{7}\x01"]
    async with open_gateway(*texts, context_tokens=4000, total_tokens=9000) as made:
        place = FakePlace(agent)
        asking = episode(made, place)
        asking.reward = seen
        asking.task = replace(TASK, answer="7")
        trajectory = await asking.run()
    (played,) = seen.received_results
    assert [turn.text for turn in played.turns] == ["hm\n\nI look.", "helper", "\\boxed{7}"]
    assert [[(call.tool, call.command) for call in turn.calls] for turn in played.turns] == [[("shell", "ls")], [], []]
    assert place.recorded == ["ls"], "it is not read for signs of cheating"
    model = [turn.reward for segment in trajectory.segments for turn in segment.turns if turn.kind is TurnKind.MODEL]
    assert model == [0.1, 0.3, 0.2], "the helper's is in a segment of its own, behind"
    assert trajectory.tests == (TestResult("answer", True),)
