"""From what an episode came to, to what the learner compares: if this fails, a document's reward is not what is trained
for."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.rewards.composite import CompositeReward, apply_reward, open_reward
from actors.rewards.episode_result import EpisodeResult, EpisodeTranscript, ModelTurn, ToolCallRecord, make_call_record
from actors.rewards.judge import JudgeScores
from actors.rewards.judge_models import VoteFailure
from actors.rewards.registry import find_outcome_reward
from actors.rewards.settings import (
    JudgeSettings,
    JudgeSpec,
    ProcessRewardKind,
    RewardSettings,
    RewardSpec,
    RewardTarget,
)
from actors.rewards.shaping import attach_turn_rewards, cap_turn_rewards, discounted_turn_rewards
from learner.data.batch import read_batch
from protocol.codec import pack_trajectory, unpack_trajectory
from protocol.errors import UserError
from protocol.trajectory import (
    EpisodeStatus,
    GroupId,
    ReplyRole,
    RolloutRequest,
    Segment,
    TestResult,
    Trajectory,
    Turn,
    TurnKind,
)
from protocol.weights import NO_VERSION, Lineage, WeightVersion
from tests.support.actors.episodes import BINARY_REWARD
from tests.support.fakes.fake_judge import GOOD, serve_fake_judge, unreachable_url
from tests.support.runs.learner_specs import make_objective, make_spec

JUDGE = JudgeSettings()


def episode(turns: int, *, passed: int = 1, test_count: int = 2, command: str = "ls") -> EpisodeResult:
    tests = tuple(TestResult(f"t{n}", n < passed) for n in range(test_count))
    turn = ModelTurn("I look.", (ToolCallRecord("bash", command, "", 0),))
    return EpisodeResult(
        "do",
        EpisodeStatus.COMPLETED,
        tests,
        passed / test_count,
        passed == test_count,
        passed / test_count,
        (turn,) * turns,
    )


class FakeJudging:
    """Gives the scores it is told to."""

    def __init__(self, *scores: float | None, failures: dict[VoteFailure, int] | None = None) -> None:
        self._judged = JudgeScores(scores, sum(score is not None for score in scores), failures or {})

    async def score_episode(self, played: EpisodeResult) -> JudgeScores:
        assert len(played.turns) == len(self._judged.scores)
        return self._judged


def rewards(
    name: str, judging: FakeJudging | None = None, /, *, judge: JudgeSettings | None = None, **settings: Any
) -> CompositeReward:
    return CompositeReward(find_outcome_reward(name).formula, RewardSettings(**settings), judging, judge)


def segment_of(turns: int, tokens: int = 2) -> Segment:
    """A prompt of one token, then turns of ``tokens`` with an observation of one token behind each."""
    length = 1 + turns * (tokens + 1)
    spans, mask = [Turn(TurnKind.PROMPT, 0, 1)], np.zeros(length, np.uint8)
    for index in range(turns):
        start = 1 + index * (tokens + 1)
        spans.append(Turn(TurnKind.MODEL, start, start + tokens))
        spans.append(Turn(TurnKind.OBSERVATION, start + tokens, start + tokens + 1))
        mask[start : start + tokens] = 1
    zeros = np.zeros(length, np.float32)
    return Segment(np.arange(length, dtype=np.int32), mask, zeros, np.where(mask, 0, -1).astype(np.int32), tuple(spans))


# -- what is added to an outcome -------------------------------------------------------------------------------------


async def test_the_default_reward_is_whether_the_episode_passed() -> None:
    worth = await BINARY_REWARD.compute_reward(episode(2, passed=2))
    assert (worth.reward.total, worth.reward.parts) == (1.0, {"pass_ratio": 1.0, "all_passed": 1.0})
    assert worth.turns == (0.0, 0.0)
    assert (await BINARY_REWARD.compute_reward(episode(0))).turns == ()


@pytest.mark.parametrize(
    ("discount", "shares"), [(1.0, (1.0, 1.0, 1.0)), (0.9, (0.81, 0.9, 1.0)), (0.5, (0.25, 0.5, 1.0))]
)
@pytest.mark.parametrize("total", [1.0, -1.0, 0.5, 0.0])
def test_a_discounted_turn_and_the_episode_reward_sum_to_the_turns_share(
    discount: float, shares: Sequence[float], total: float
) -> None:
    """OpenClaw: base · discount^(T − 1 − t)."""
    own = discounted_turn_rewards(total, 3, discount)
    assert tuple(total + each for each in own) == pytest.approx([total * share for share in shares])


@given(st.lists(st.floats(-0.1, 0.1), max_size=40), st.floats(0.001, 1.0))
def test_cumulative_turn_rewards_stay_within_the_cap_at_every_turn(values: list[float], cap: float) -> None:
    capped = cap_turn_rewards(values, cap)
    assert all(abs(sum(capped[:end])) <= cap + 1e-9 for end in range(len(capped) + 1))
    small = sum(map(abs, values)) <= cap
    assert not small or capped == pytest.approx(values)


async def test_process_rules_add_to_the_episode_reward_up_to_the_cap() -> None:
    settings = {"process": ProcessRewardKind.ART, "process_cap": 0.1}
    few, many = [await rewards("art", **settings).compute_reward(episode(turns)) for turns in (2, 30)]
    assert few.reward.total == pytest.approx(0.25 + 2 * 0.03)
    assert few.reward.parts["process"] == pytest.approx(0.06)
    assert few.reward.parts["process_command_succeeds"] == pytest.approx(0.04)
    assert many.reward.total == pytest.approx(0.25 + 0.1)
    assert set(many.turns) == {0.0}
    solved = await rewards("art", **settings).compute_reward(episode(30, passed=2, command="echo"))
    assert (solved.reward.total, solved.reward.parts["all_passed"]) == (pytest.approx(0.9), 1.0)
    assert solved.reward.total > many.reward.total


async def test_process_rules_reward_turns_if_configured() -> None:
    settings = {"process": ProcessRewardKind.ART, "process_cap": 0.05, "process_target": RewardTarget.TURNS}
    worth = await rewards("art", **settings).compute_reward(episode(3))
    assert worth.reward.total == 0.25
    assert worth.turns == pytest.approx((0.03, 0.02, 0.0))
    assert worth.reward.parts["process"] == pytest.approx(0.05)


async def test_judge_scores_reward_turns_and_failed_votes_are_counted_without_reward() -> None:
    judge = FakeJudging(1.0, None, -1.0 / 3, failures={VoteFailure.SLOW: 3})
    settings = JudgeSettings(coefficient=0.5)
    worth = await rewards("signed_pass_ratio", judge, judge=settings).compute_reward(episode(3))
    assert worth.reward.total == 0.0
    assert worth.turns == pytest.approx((0.5, 0.0, -1 / 6))
    parts = {name: value for name, value in worth.reward.parts.items() if name.startswith("judge")}
    assert parts == pytest.approx(
        {"judge": 1 / 6, "judge_votes": 2.0, "judge_invalid": 0.0, "judge_slow": 3.0, "judge_down": 0.0}
    )


async def test_the_judges_mean_score_is_added_to_the_episode_reward_if_configured() -> None:
    """OpenClaw's swe-rl: outcome + coefficient · mean of the steps."""
    settings = JudgeSettings(coefficient=0.5, target=RewardTarget.TOTAL)
    worth = await rewards("binary", FakeJudging(1.0, None, 0.0), judge=settings).compute_reward(episode(3, passed=2))
    assert (worth.reward.total, worth.turns) == (1.25, (0.0, 0.0, 0.0))
    assert worth.reward.parts["all_passed"] == 1.0


async def test_a_zero_judge_coefficient_gives_no_reward() -> None:
    """OpenClaw's own was read under another name, so that it never did anything."""
    worth = await rewards("binary", FakeJudging(1.0), judge=JudgeSettings(coefficient=0.0)).compute_reward(episode(1))
    assert worth.turns == (0.0,)


async def test_a_judge_with_only_failed_votes_leaves_the_reward_unchanged() -> None:
    failed = FakeJudging(None, None, failures={VoteFailure.DOWN: 2})
    for into in RewardTarget:
        worth = await rewards("tcr", failed, judge=JudgeSettings(target=into)).compute_reward(episode(2))
        assert (worth.reward.total, worth.turns) == (
            (await rewards("tcr").compute_reward(episode(2))).reward.total,
            (0.0, 0.0),
        )


async def test_evaluations_ask_no_judge() -> None:
    whole = rewards("binary", FakeJudging(1.0), judge=JUDGE)
    assert (await whole.without_judge().compute_reward(episode(1))).turns == (0.0,)


async def test_opened_rewards_ask_the_judge_that_is_configured() -> None:
    async with serve_fake_judge(GOOD) as server:
        judge = JudgeSpec(JudgeSettings(url=server.url, model="j", votes=2), "$task $turn")
        async with open_reward(RewardSpec("signed_pass_ratio", RewardSettings(), judge)) as opened:
            worth = await opened.compute_reward(episode(2))
    assert (worth.reward.total, worth.turns) == (0.0, (1.0, 1.0))
    dead = JudgeSpec(JudgeSettings(url=unreachable_url(), model="j", votes=1), "$task $turn")
    async with open_reward(RewardSpec("tcr", RewardSettings(), dead)) as opened:
        worth = await opened.compute_reward(episode(2))
    assert (worth.reward.total, worth.turns, worth.reward.parts["judge_down"]) == (-0.8, (0.0, 0.0), 2.0)


async def test_an_unknown_reward_name_is_refused_when_it_is_opened() -> None:
    with pytest.raises(UserError, match="is none of"):
        async with open_reward(RewardSpec("tcrr", RewardSettings())):
            pass


# -- turns ----------------------------------------------------------------------------------------------------------


def test_a_transcript_keeps_turns_calls_and_outputs_in_order() -> None:
    transcript = EpisodeTranscript()
    assert transcript.last_content == ""
    transcript.add_turn(
        "two",
        [make_call_record("a", {"command": "ls"}), make_call_record("b", {"content": "x", "path": "y", "n": 3})],
        malformed=False,
    )
    transcript.add_tool_result("out", 0, timed_out=False)
    transcript.add_tool_result("late", None, timed_out=True)
    transcript.add_turn("cut short", [make_call_record("a", {"command": "rm -rf /"})], malformed=False)
    transcript.add_turn("done", malformed=False)
    assert transcript.turns == [
        ModelTurn("two", (ToolCallRecord("a", "ls", "out", 0), ToolCallRecord("b", "x\ny", "late", None, True))),
        ModelTurn("cut short", (ToolCallRecord("a", "rm -rf /"),)),
        ModelTurn("done"),
    ]
    assert transcript.last_content == "done"


def test_rewards_go_to_the_models_turns_of_all_segments_in_order() -> None:
    whole = attach_turn_rewards([segment_of(2), segment_of(1)], (0.1, 0.0, -1 / 3))
    found = [[(turn.kind, turn.reward) for turn in segment.turns] for segment in whole]
    model = [[reward for kind, reward in turns if kind is TurnKind.MODEL] for turns in found]
    assert model == [[0.1, 0.0], [-0.333333]]
    assert {reward for turns in found for kind, reward in turns if kind is not TurnKind.MODEL} == {0.0}


def test_replies_that_are_not_the_agents_work_have_no_reward_of_their_own() -> None:
    segment = segment_of(2)
    title = replace(segment, turns=(*segment.turns[:3], segment.turns[3]._replace(role=ReplyRole.AUXILIARY)))
    (paid,) = attach_turn_rewards([title], (0.5,))
    assert [turn.reward for turn in paid.turns] == [0.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("rewards", [(), (0.0,), (0.0, 0.0, 0.0)])
def test_a_number_of_rewards_different_from_the_turns_is_refused(rewards: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="for 2 turns"):
        attach_turn_rewards([segment_of(2)], rewards)


# -- what the learner makes of it -----------------------------------------------------------------------------------


async def trajectory(sample: int, scores: Sequence[float], passed: int, discount: float, coefficient: float) -> bytes:
    """Return OpenClaw's reward of an episode with these turn scores, as a worker would send it."""
    judging = JudgeSettings(coefficient=coefficient)
    whole = rewards("signed_pass_ratio", FakeJudging(*scores), discount=discount, judge=judging)
    played = episode(len(scores), passed=passed)
    reward, segments = await apply_reward(whole, played, [segment_of(len(scores))], range(len(scores)))
    request = RolloutRequest("run", GroupId(0), sample, 4, "task", 0)
    return pack_trajectory(Trajectory(request, EpisodeStatus.COMPLETED, reward, segments, tests=played.tests))


async def test_advantages_by_group_and_step_equal_openclaws() -> None:
    """score_t = base · discount^(T − 1 − t) + coefficient · prm_t, compared with the group's scores at the same t
    (terminal-rl/generate.py:90-103, slime/ray/rollout.py:545-618)."""
    discount, coefficient = 0.9, 0.5
    judged = [((1.0, -1.0, 1.0), 2), ((1.0, 1.0), 0), ((-1.0, 1 / 3), 1)]
    scores = [
        [(2 * passed / 2 - 1) * discount ** (len(prm) - 1 - t) + coefficient * score for t, score in enumerate(prm)]
        for prm, passed in judged
    ]
    lineage = Lineage()
    lineage.add(WeightVersion(0), 0, NO_VERSION)
    payload = [await trajectory(n, prm, passed, discount, coefficient) for n, (prm, passed) in enumerate(judged)]
    batch = read_batch(
        payload, lineage, WeightVersion(0), make_spec("unused", objective=make_objective(advantage="turn"))
    )
    for own, sample in zip(scores, batch.samples, strict=True):
        found = sample.columns.advantages.reshape(-1, 2)[:, 0].tolist()
        for step, score in enumerate(own):
            peers = [each[step] for each in scores if len(each) > step]
            wanted = (score - statistics.mean(peers)) / (statistics.stdev(peers) + 1e-6) if len(peers) > 1 else 0.0
            assert found[step] == pytest.approx(wanted, rel=1e-4)


async def test_turn_rewards_and_reward_parts_survive_encoding() -> None:
    sent = unpack_trajectory(await trajectory(0, (1.0, -1.0), 1, 0.9, 1.0))
    turns = [turn.reward for turn in sent.segments[0].turns if turn.kind is TurnKind.MODEL]
    assert turns == pytest.approx([1.0, -1.0])
    assert sent.reward.parts["judge_votes"] == 2.0
