"""If these fail, tokens are trained that the policy did not sample, or an infrastructure failure becomes a reward."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest

from actors.agents.agent import Agent
from actors.agents.bash_block import SUBMIT, BashBlockAgent
from actors.agents.code_interpreter import CodeInterpreterAgent
from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.agents.settings import HistoryMode
from actors.engines.messages import EngineUnavailable, GenerateReply, GenerateRequest
from actors.rewards.composite import CompositeReward, RewardFunction
from actors.rewards.episode_result import ModelTurn, ToolCallRecord
from actors.rewards.registry import find_outcome_reward
from actors.rollout.episode import run_agent_episode
from actors.rollout.settings import EpisodeSettings
from actors.rollout.stages import NO_DEADLINES, StageDeadlines, StageOverrun, run_stage
from actors.tokens.chat_format import ChatFormat
from actors.tokens.truncation import OMITTED_MIDDLE
from learner.data.sequences import join_sequences
from protocol.trajectory import TRAIN_PURPOSE, EpisodeStatus, RolloutRequest, TestResult, Trajectory, TurnKind
from sandbox.tasks.task import Task, TaskStep
from sandbox.tools import SHELL_ONLY
from tests.support.actors.episodes import BINARY_REWARD, REQUEST, episode_context
from tests.support.actors.observers import FakeObserver, FakeReward
from tests.support.fakes.fake_policy import END, LS, FakeTokenizer, ScriptedEngine
from tests.support.fakes.fake_terminal import FakeTerminal

CALL = '<tool_call>{"name": "shell_exec", "arguments": {"command": "ls"}}</tool_call>'
SETTINGS = EpisodeSettings(
    max_turns=3,
    max_malformed=2,
    max_new_tokens=100,
    context_tokens=400,
    temperature=1.0,
    nominal_tokens_per_s=50.0,
    time_limit_s=60.0,
)
AGENT = HermesAgent(PromptTemplate("sys"), SHELL_ONLY, {})
TASK = Task(id="t", instruction="list", expected_tests=("a", "b"))


@dataclass
class EpisodeScene:
    """One episode of :data:`AGENT`, whose parts a test may exchange before it runs."""

    engine: ScriptedEngine
    terminal: FakeTerminal
    settings: EpisodeSettings
    agent: Agent = AGENT
    task: Task = TASK
    request: RolloutRequest = REQUEST
    reward: RewardFunction = BINARY_REWARD
    deadlines: StageDeadlines = NO_DEADLINES
    observer: FakeObserver = field(default_factory=FakeObserver)

    async def run(self) -> Trajectory:
        context = episode_context(
            self.settings,
            self.task,
            request=self.request,
            reward=self.reward,
            observer=self.observer,
            deadlines=self.deadlines,
        )
        chat = ChatFormat(FakeTokenizer())
        return await run_agent_episode(context, self.agent, chat, self.engine.generate, self.terminal)


def episode(
    engine: ScriptedEngine,
    terminal: FakeTerminal,
    settings: EpisodeSettings = SETTINGS,
    reward: RewardFunction = BINARY_REWARD,
) -> EpisodeScene:
    return EpisodeScene(engine, terminal, settings, reward=reward)


def changed(settings: EpisodeSettings, **changes: object) -> EpisodeSettings:
    return settings.model_copy(update=changes)


async def test_exactly_the_sampled_tokens_have_loss_with_their_logprobs_and_versions() -> None:
    engine = ScriptedEngine([CALL + "\x01", "done\x01"])
    trajectory = await episode(engine, FakeTerminal()).run()
    (segment,) = trajectory.segments
    text = "".join(map(chr, segment.token_ids))
    assert text == (f"<system>sys\x01\n<user>list\x01\n<assistant>{CALL}\x01\n<tool>out\x01\n<assistant>done\x01"), (
        "the native path must equal the full render"
    )
    sampled = "".join(char for char, loss in zip(text, segment.loss_mask, strict=True) if loss)
    assert sampled == f"{CALL}\x01done\x01"
    assert set(segment.logprobs[segment.loss_mask == 0]) == {0.0}
    assert set(segment.versions[segment.loss_mask == 0]) == {-1}
    assert [turn.kind for turn in segment.turns] == [
        TurnKind.PROMPT,
        TurnKind.MODEL,
        TurnKind.OBSERVATION,
        TurnKind.MODEL,
    ]
    last = segment.turns[-1]
    assert set(segment.versions[last.start : last.end]) == {2}
    assert trajectory.status is EpisodeStatus.COMPLETED
    assert trajectory.reward.total == 0.0
    assert trajectory.reward.parts["pass_ratio"] == 0.5


async def test_the_next_prompt_contains_the_sampled_ids_and_not_their_retokenized_text() -> None:
    reply = CALL.replace("ls", chr(LS)) + "\x01"
    sampled, tokenizer = [END if char == "\x01" else ord(char) for char in reply], FakeTokenizer()
    again = tokenizer.encode(tokenizer.decode(sampled, skip_special_tokens=False), add_special_tokens=False)
    assert again != sampled, "or this test would show nothing"
    engine = ScriptedEngine([reply, "done\x01"])
    trajectory = await episode(engine, FakeTerminal()).run()
    first, second = (request.input_ids for request in engine.received_requests)
    assert second[: len(first) + len(sampled)] == [*first, *sampled]
    assert trajectory.segments[0].token_ids[: len(second)].tolist() == second


async def test_a_truncated_turn_is_closed_by_the_template_without_loss() -> None:
    engine = ScriptedEngine([f"{CALL}{CALL[:5]}", "done\x01"])
    settings = EpisodeSettings(
        max_turns=3,
        max_malformed=2,
        max_new_tokens=len(CALL),
        context_tokens=400,
        temperature=1.0,
        nominal_tokens_per_s=50.0,
        time_limit_s=60.0,
    )
    (segment,) = (await episode(engine, FakeTerminal(), settings).run()).segments
    model = segment.turns[1]
    assert segment.token_ids[model.end] == END
    assert segment.loss_mask[model.end] == 0


async def test_an_agent_that_destroys_its_sandbox_gets_a_failed_tasks_reward() -> None:
    trajectory = await episode(ScriptedEngine([CALL + "\x01"]), FakeTerminal(destroyed_at=1)).run()
    assert trajectory.status is EpisodeStatus.SANDBOX_DESTROYED
    assert trajectory.reward.total == 0.0
    assert [test.passed for test in trajectory.tests] == [False, False]
    assert trajectory.sampled_tokens == len(CALL) + 1


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ([CALL + "\x01"] * 3, EpisodeStatus.TURN_LIMIT),
        (["<tool_call>{\x01"] * 2, EpisodeStatus.MALFORMED_LIMIT),
        ([CALL + "\x01", "x" * 100, "x" * 100], EpisodeStatus.MALFORMED_LIMIT),
    ],
)
async def test_limits_are_policy_outcomes(texts: list[str], status: EpisodeStatus) -> None:
    assert (await episode(ScriptedEngine(texts), FakeTerminal()).run()).status is status


async def test_the_context_limit_is_a_policy_outcome() -> None:
    settings = changed(SETTINGS, context_tokens=40)
    cut = episode(ScriptedEngine(["x" * 100]), FakeTerminal(), settings)
    observer = cut.observer = FakeObserver()
    trajectory = await cut.run()
    assert trajectory.status is EpisodeStatus.CONTEXT_LIMIT
    assert observer.texts == ["x" * trajectory.sampled_tokens], "the last that it said is missing"


@pytest.mark.parametrize("room", [0, 1])
async def test_an_observation_without_room_for_a_reply_ends_the_episode_and_is_left_out(room: int) -> None:
    """Otherwise the trajectory would exceed its reservation, be refused, and count as failed hardware."""
    texts, terminal = [CALL * 3 + "\x01", "done\x01"], FakeTerminal("x" * 500)
    large = EpisodeSettings(
        max_turns=3,
        max_malformed=2,
        max_new_tokens=400,
        context_tokens=4000,
        temperature=1.0,
        nominal_tokens_per_s=50.0,
        time_limit_s=60.0,
    )
    engine = ScriptedEngine([*texts])
    await episode(engine, terminal, large).run()
    context = len(engine.received_requests[1].input_ids) + room
    again = ScriptedEngine([*texts])
    trajectory = await episode(again, terminal, changed(large, context_tokens=context)).run()
    kinds = [turn.kind for turn in trajectory.segments[0].turns]
    assert trajectory.status is EpisodeStatus.CONTEXT_LIMIT
    assert len(again.received_requests) == 1 + room
    assert kinds == [TurnKind.PROMPT, TurnKind.MODEL, *[TurnKind.OBSERVATION, TurnKind.MODEL] * room]
    assert trajectory.tokens <= context


async def test_the_agents_time_limit_counts_sandbox_time_and_sampled_tokens() -> None:
    settings = EpisodeSettings(
        max_turns=3,
        max_malformed=2,
        max_new_tokens=100,
        context_tokens=400,
        temperature=1.0,
        nominal_tokens_per_s=1.0,
        time_limit_s=60.0,
    )
    assert (
        await episode(ScriptedEngine([CALL + "\x01"]), FakeTerminal(), settings).run()
    ).status is EpisodeStatus.TIME_LIMIT


@pytest.mark.parametrize(("purpose", "temperature"), [(TRAIN_PURPOSE, 0.7), ("before", 1.0)])
async def test_only_training_is_sampled_at_the_runs_temperature(purpose: str, temperature: float) -> None:
    """Otherwise the reported pass@1 would be measured at another temperature."""
    engine = ScriptedEngine(["done\x01"])
    asking = episode(engine, FakeTerminal(), changed(SETTINGS, temperature=0.7))
    asking.request = replace(asking.request, purpose=purpose)
    await asking.run()
    assert [request.temperature for request in engine.received_requests] == [temperature]


async def test_an_engine_failure_raises_and_gives_no_trajectory() -> None:
    async def fail(request: GenerateRequest) -> GenerateReply:
        raise EngineUnavailable("gone")

    failing = episode(ScriptedEngine([]), FakeTerminal())
    failing.engine = cast("ScriptedEngine", SimpleNamespace(generate=fail))
    with pytest.raises(EngineUnavailable):
        await failing.run()


async def test_calls_after_the_time_limit_are_answered_but_not_run() -> None:
    """Otherwise an agent with many slow calls at once would outlive its request and count as failed hardware."""
    settings = EpisodeSettings(
        max_turns=3,
        max_malformed=2,
        max_new_tokens=400,
        context_tokens=2000,
        temperature=1.0,
        nominal_tokens_per_s=1e9,
        time_limit_s=0.0101,
    )
    terminal = FakeTerminal()
    trajectory = await episode(ScriptedEngine([CALL * 5 + "\x01"]), terminal, settings).run()
    assert (trajectory.status, terminal.calls) == (EpisodeStatus.TIME_LIMIT, 3)
    assert "".join(map(chr, trajectory.segments[0].token_ids)).count("not run, your time is up") == 2


async def test_a_reward_receives_texts_calls_and_outputs_of_each_turn() -> None:
    """Otherwise a rule would count calls that were not made, or miss calls that were."""
    seen = FakeReward()
    texts = [f"I look. {CALL}{CALL}", "<tool_call>{", "done"]
    large = changed(SETTINGS, max_new_tokens=400, context_tokens=4000)
    trajectory = await episode(ScriptedEngine([f"{text}\x01" for text in texts]), FakeTerminal(), large, seen).run()
    (played,) = seen.received_results
    looked = ToolCallRecord("shell_exec", "ls", "out", 0)
    assert played.turns == (
        ModelTurn(texts[0], (looked, looked)), ModelTurn(texts[1], malformed=True), ModelTurn(texts[2]),
    )  # fmt: skip
    assert (played.tool_call_count, played.max_calls_in_turn) == (2, 2)
    assert (played.instruction, played.status, played.all_passed) == ("list", EpisodeStatus.COMPLETED, False)
    assert played.sampled_tokens == trajectory.sampled_tokens
    assert (trajectory.reward.total, trajectory.reward.parts) == (0.5, {"fake": 0.5})
    rewards = [(turn.kind, turn.reward) for turn in trajectory.segments[0].turns]
    assert [reward for kind, reward in rewards if kind is TurnKind.MODEL] == [0.1, 0.2, 0.3]
    assert {reward for kind, reward in rewards if kind is not TurnKind.MODEL} == {0.0}


@pytest.mark.parametrize(
    ("texts", "context", "calls"),
    [([f"{CALL}\x01"], 400, 1), (["x" * 100], 40, 0), ([f"{CALL * 5}\x01"], 4000, 5)],
    ids=["destroyed", "context limit", "time limit"],
)
async def test_requested_calls_are_counted_however_the_episode_ended(
    texts: list[str], context: int, calls: int
) -> None:
    seen = FakeReward()
    settings = changed(SETTINGS, max_new_tokens=400 if calls > 1 else 100, context_tokens=context)
    settings = changed(settings, time_limit_s=0.0101, nominal_tokens_per_s=1e9)
    await episode(ScriptedEngine([*texts]), FakeTerminal(destroyed_at=1 if calls == 1 else 99), settings, seen).run()
    assert (len(seen.received_results[0].turns), seen.received_results[0].tool_call_count) == (1, calls)


@pytest.mark.parametrize(
    ("last", "right"), [("It is \\boxed{\\frac{2}{4}}.", True), ("\\boxed{2}", False), ("1/2", False)]
)
async def test_an_answer_task_is_graded_by_the_last_reply(last: str, right: bool) -> None:
    asking = episode(ScriptedEngine([f"\\boxed{{1/2}} {CALL}\x01", f"{last}\x01"]), FakeTerminal())
    asking.task = Task(id="t", instruction="how much?", answer="1/2")
    trajectory = await asking.run()
    assert trajectory.tests == (TestResult("answer", right),)
    assert trajectory.reward.total == float(right)


async def test_an_agent_that_destroyed_its_sandbox_fails_an_answer_task() -> None:
    asking = episode(ScriptedEngine([f"\\boxed{{7}} {CALL}\x01"]), FakeTerminal(destroyed_at=1))
    asking.task = Task(id="t", instruction="how much?", answer="7")
    trajectory = await asking.run()
    assert (trajectory.status, trajectory.tests) == (EpisodeStatus.SANDBOX_DESTROYED, (TestResult("answer", False),))


async def test_tool_output_is_truncated_by_tokens_keeping_both_ends_with_a_mark() -> None:
    """Otherwise one command could fill the context, however few characters or many tokens it printed."""
    engine = ScriptedEngine([CALL + "\x01", "done\x01"])
    settings = changed(SETTINGS, observation_tokens=44, context_tokens=2000)
    await episode(engine, FakeTerminal("a" * 50 + "b" * 50), settings).run()
    assert "<tool>aaaaaaa\n... [86 tokens left out] ...\nbbbbbbb\x01" in "".join(
        map(chr, engine.received_requests[1].input_ids)
    )


async def test_calls_beyond_the_limit_per_reply_are_answered_but_not_run() -> None:
    settings = changed(SETTINGS, max_calls=1, max_new_tokens=400, context_tokens=2000)
    engine, terminal = ScriptedEngine([CALL * 3 + "\x01", "done\x01"]), FakeTerminal()
    trajectory = await episode(engine, terminal, settings).run()
    assert terminal.calls == 1
    assert [turn.tool for turn in trajectory.segments[0].turns if turn.tool] == ["shell_exec"]
    assert (
        "".join(map(chr, engine.received_requests[1].input_ids)).count("not run, as at most 1 of a reply's calls are")
        == 2
    )


async def test_a_submission_ends_the_episode_like_a_final_reply() -> None:
    """The command's output is passed to nobody: the policy does not go on."""
    submits = episode(ScriptedEngine(["```bash\nmake submission\n```\x01"]), FakeTerminal(f"{SUBMIT}\n"))
    submits.agent = BashBlockAgent(PromptTemplate("sys"))
    trajectory = await submits.run()
    assert trajectory.status is EpisodeStatus.COMPLETED
    assert trajectory.segments[0].turns[-1].kind is TurnKind.MODEL


async def test_a_final_reply_with_actions_ends_the_episode_after_they_are_run() -> None:
    answering, terminal = episode(ScriptedEngine(["It is 7.\x01"]), FakeTerminal()), FakeTerminal()
    answering.agent, answering.terminal = CodeInterpreterAgent(PromptTemplate("sys"), {}), terminal
    assert ((await answering.run()).status, terminal.calls) == (EpisodeStatus.COMPLETED, 1)
    late = episode(ScriptedEngine(["It is 7.\x01"]), terminal, changed(SETTINGS, nominal_tokens_per_s=0.01))
    late.agent = CodeInterpreterAgent(PromptTemplate("sys"), {})
    assert ((await late.run()).status, terminal.calls) == (EpisodeStatus.TIME_LIMIT, 1)


async def test_an_answer_does_not_count_as_a_tool_call() -> None:
    """GRPO-TCR's wrong answers would be worth a tenth more than its table says, those without a call too."""
    program = '<tool_call>{"name": "code_interpreter", "arguments": {"code": "1"}}</tool_call>'
    settings = changed(SETTINGS, max_new_tokens=400, context_tokens=2000)
    reward = CompositeReward(find_outcome_reward("tcr").formula)
    for calls, total in ((0, -1.0), (1, -0.9), (2, -0.8)):
        engine = ScriptedEngine([*[f"{program}\x01"] * calls, "It is 8.\x01"])
        answering = episode(engine, FakeTerminal(), settings, reward)
        answering.agent = CodeInterpreterAgent(PromptTemplate("sys"), {})
        assert (await answering.run()).reward.total == total


@pytest.mark.parametrize(("most", "total"), [(1, -0.9), (2, -0.8), (0, -0.6)])
async def test_a_call_that_is_not_run_earns_no_reward(most: int, total: float) -> None:
    """Otherwise a policy would get GRPO-TCR's whole bonus for the calls of its first reply, of which one is run."""
    program = '<tool_call>{"name": "code_interpreter", "arguments": {"code": "1"}}</tool_call>'
    settings = changed(
        SETTINGS,
        max_new_tokens=400,
        context_tokens=2000,
        max_calls=most,
    )
    reward = CompositeReward(find_outcome_reward("tcr").formula)
    answering = episode(ScriptedEngine([f"{program * 4}\x01", "It is 8.\x01"]), FakeTerminal(), settings, reward)
    answering.agent = CodeInterpreterAgent(PromptTemplate("sys"), {})
    assert (await answering.run()).reward.total == total


async def test_a_truncated_final_reply_does_not_end_the_episode() -> None:
    """Half an answer would be graded, and the model never told."""
    engine, terminal = ScriptedEngine(["It is 7" + "0" * 50, "It is 7.\x01"]), FakeTerminal()
    cut = episode(engine, terminal, changed(SETTINGS, max_new_tokens=20))
    cut.agent = CodeInterpreterAgent(PromptTemplate("sys"), {})
    assert ((await cut.run()).status, terminal.calls) == (EpisodeStatus.COMPLETED, 1)
    assert "Error: the reply was cut after 20 tokens" in "".join(map(chr, engine.received_requests[1].input_ids))


async def test_a_thought_truncated_by_the_context_is_not_a_malformed_call() -> None:
    settings = changed(SETTINGS, context_tokens=60, max_malformed=1)
    assert (await episode(ScriptedEngine(["<think>" + "x" * 100]), FakeTerminal(), settings).run()).status is (
        EpisodeStatus.CONTEXT_LIMIT
    )


@pytest.mark.parametrize("name", ["agent", "evaluate"])
async def test_a_stage_overrun_is_an_infrastructure_failure_that_names_the_stage(name: str) -> None:
    """Otherwise a graded episode could be lost, or the slow stage would remain unknown."""

    async def never(*_: object) -> GenerateReply:
        await asyncio.Event().wait()
        raise AssertionError

    slow = episode(ScriptedEngine(["done\x01"]), FakeTerminal())
    if name == "agent":
        slow.engine = cast("ScriptedEngine", SimpleNamespace(generate=never))
    else:
        slow.terminal.grade = never
    now = asyncio.get_running_loop().time()
    slow.deadlines = replace(StageDeadlines(), **{name: now})
    with pytest.raises(StageOverrun, match=f"stage '{name}'"):
        await slow.run()


def test_each_stage_deadline_leaves_time_for_later_stages() -> None:
    assert StageDeadlines.for_episode(1000.0, 600.0, evaluate_s=60.0, after_s=15.0) == StageDeadlines(
        agent=1525.0, evaluate=1585.0
    )


async def test_a_timeout_inside_a_stage_is_not_a_stage_overrun() -> None:
    with pytest.raises(TimeoutError):
        async with run_stage("agent", asyncio.get_running_loop().time() + 60):
            raise TimeoutError


def sequences_of(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Text of each sequence that is trained, and of what of it has loss."""
    found = join_sequences(trajectory.segments)
    return [("".join(map(chr, ids)), "".join(map(chr, ids[mask == 1]))) for ids, mask in found]


async def test_with_a_rerendered_history_each_turn_is_trained_on_the_prompt_it_had() -> None:
    """Sampled text comes back re-tokenised, and none of it is trained twice."""
    reply = CALL.replace("ls", chr(LS)) + "\x01"
    engine = ScriptedEngine([reply, reply, "done\x01"])
    individual = changed(SETTINGS, max_turns=4, context_tokens=2000, history=HistoryMode.INDIVIDUAL)
    trajectory = await episode(engine, FakeTerminal(), individual).run()
    assert (trajectory.status, trajectory.sampled_tokens) == (EpisodeStatus.COMPLETED, 2 * len(reply) + 5)
    assert chr(LS) not in "".join(map(chr, engine.received_requests[2].input_ids)), (
        "the history is not as it was sampled"
    )
    trained = sequences_of(trajectory)
    sampled = [reply, reply, "done\x01"]
    assert [loss for _, loss in trained] == sampled
    for (text, loss), sent in zip(trained, engine.received_requests, strict=True):
        assert text == "".join(map(chr, sent.input_ids)) + loss
    assert trajectory.tokens < sum(len(text) for text, _ in trained), "what prompts share is stored once"


async def test_a_rerendered_history_with_unchanged_prefix_is_one_sequence() -> None:
    texts = [CALL + "\x01", "done\x01"]
    individual = changed(SETTINGS, history=HistoryMode.INDIVIDUAL)
    anew = await episode(ScriptedEngine([*texts]), FakeTerminal(), individual).run()
    native = await episode(ScriptedEngine([*texts]), FakeTerminal()).run()
    assert sequences_of(anew) == sequences_of(native)
    assert [turn._replace(duration_ms=0.0) for turn in anew.segments[0].turns] == [
        turn._replace(duration_ms=0.0) for turn in native.segments[0].turns
    ]


async def test_an_overlong_dynamic_history_loses_its_middle_and_the_episode_continues() -> None:
    dynamic = changed(
        SETTINGS, max_turns=6, max_new_tokens=100, context_tokens=300, history=HistoryMode.DYNAMIC, history_head=0.3
    )
    engine = ScriptedEngine([*[CALL + "\x01"] * 5, "done\x01"])
    trajectory = await episode(engine, FakeTerminal("x" * 60), dynamic).run()
    assert trajectory.status is EpisodeStatus.COMPLETED
    prompts = ["".join(map(chr, sent.input_ids)) for sent in engine.received_requests]
    assert max(map(len, prompts)) == 200
    cut = [prompt for prompt in prompts if OMITTED_MIDDLE in prompt]
    assert cut
    for prompt in cut:
        assert prompt.index(OMITTED_MIDDLE) == int(0.3 * (200 - len(OMITTED_MIDDLE)))
        assert prompt.startswith("<system>sys\x01\n<user>list\x01\n")
        assert prompt.endswith("x\x01\n<assistant>")
    for (text, loss), prompt in zip(sequences_of(trajectory)[-len(cut) :], cut, strict=True):
        assert text == prompt + loss
    assert sum(len(loss) for _, loss in sequences_of(trajectory)) == trajectory.sampled_tokens


@pytest.mark.parametrize("history", [HistoryMode.INDIVIDUAL, HistoryMode.DYNAMIC])
async def test_all_segments_together_stay_within_the_trajectorys_token_limit(history: HistoryMode) -> None:
    """Otherwise the trajectory would be refused on arrival and count as failed hardware."""
    limited = changed(
        SETTINGS, max_turns=50, max_new_tokens=100, context_tokens=300, history=history, trajectory_tokens=700
    )
    trajectory = await episode(ScriptedEngine([CALL + "\x01"] * 50), FakeTerminal("x" * 60), limited).run()
    assert trajectory.status is EpisodeStatus.CONTEXT_LIMIT
    assert trajectory.tokens <= 700


STEPPED = replace(
    TASK, steps=tuple(TaskStep(name, f"do {name}", agent_timeout_s=60.0, expected_tests=("a",)) for name in ("x", "y"))
)


@pytest.mark.parametrize("history", HistoryMode)
async def test_each_step_of_a_task_begins_a_history_of_its_own_in_one_trajectory(history: HistoryMode) -> None:
    engine = ScriptedEngine([f"{CALL}\x01", "done\x01", f"{CALL}\x01", "well\x01"])
    settings = SETTINGS.model_copy(update={"max_turns": 4, "history": history})
    scene = EpisodeScene(engine, FakeTerminal(steps=2), settings, task=STEPPED)
    trajectory = await scene.run()
    assert (trajectory.status, scene.terminal.calls, scene.terminal.graded) == (EpisodeStatus.COMPLETED, 2, 2)
    chat = ChatFormat(FakeTokenizer())
    prompts = [chat.encode_first_prompt(AGENT.opening_messages(step)) for step in STEPPED.in_steps]
    asked = [request.input_ids for request in engine.received_requests]
    assert [asked[0], asked[2]] == prompts
    assert asked[3][: len(prompts[1])] == prompts[1]
    roots = [segment for segment in trajectory.segments if segment.parent < 0]
    assert [segment.turns[0].kind for segment in roots] == [TurnKind.PROMPT] * 2
    assert {"step_x": 0.5, "step_y": 0.5}.items() <= trajectory.reward.parts.items()
    sampled = [tokens[mask > 0].tolist() for tokens, mask in join_sequences(trajectory.segments)]
    assert sum(map(len, sampled)) == trajectory.sampled_tokens == sum(len(reply.token_ids) for reply in engine.replies)


async def test_the_limits_of_a_run_hold_for_all_steps_together() -> None:
    engine = ScriptedEngine([f"{CALL}\x01"] * 4)
    scene = EpisodeScene(engine, FakeTerminal(steps=2), SETTINGS, task=STEPPED)
    trajectory = await scene.run()
    assert (trajectory.status, len(engine.received_requests), scene.terminal.graded) == (EpisodeStatus.TURN_LIMIT, 3, 2)
    assert len([segment for segment in trajectory.segments if segment.parent < 0]) == 1


async def test_no_step_is_played_after_one_that_ends_the_task() -> None:
    engine = ScriptedEngine(["done\x01", "never\x01"])
    scene = EpisodeScene(engine, FakeTerminal(), SETTINGS, task=STEPPED)
    await scene.run()
    assert (len(engine.received_requests), scene.terminal.graded) == (1, 1)


async def test_an_agent_that_destroys_its_sandbox_fails_the_tests_of_every_step() -> None:
    scene = EpisodeScene(ScriptedEngine([f"{CALL}\x01"]), FakeTerminal(steps=2, destroyed_at=1), SETTINGS, task=STEPPED)
    trajectory = await scene.run()
    assert (trajectory.status, len(trajectory.tests), trajectory.passed) == (EpisodeStatus.SANDBOX_DESTROYED, 2, False)
