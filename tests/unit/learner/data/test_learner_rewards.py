"""From an episode's reward to each token's advantage and share of the loss."""

import statistics
from dataclasses import replace

import numpy as np
import pytest

from actors.gateway.reply_roles import mark_roles
from learner.data.batch import read_batch
from learner.losses.aggregation import token_loss_weights
from learner.losses.reward_shaping import shape_reward
from learner.losses.settings import AdvantageEstimator, LossAggregation, RewardShapingSettings
from protocol.codec import pack_trajectory
from protocol.trajectory import (
    ASIDES,
    MAX_REWARD,
    EpisodeStatus,
    GroupId,
    ReplyRole,
    Reward,
    RolloutRequest,
    Segment,
    Trajectory,
    Turn,
    TurnKind,
)
from protocol.weights import NO_VERSION, Lineage, WeightVersion
from tests.support.runs.learner_specs import make_objective, make_spec


@pytest.mark.parametrize(
    ("sampled", "penalty"), [(0, 0.0), (7480, 0.0), (7481, -1 / 3000), (8980, -0.5), (10480, -1.0), (11980, -1.5)]
)
def test_overlong_penalty_is_that_of_the_seed_system(sampled, penalty):
    """GRPO-TCR's numbers: 10,480 tokens, the last 3,000 of which are paid for."""
    shaping = RewardShapingSettings(overlong_tokens=10480, overlong_buffer=3000)
    assert shape_reward(1.0, sampled, shaping) == pytest.approx(1.0 + penalty)


@pytest.mark.parametrize(
    ("reward", "expected"), [(0, -5), (0.25, -2.5), (0.5, 0), (1.0, 5), (1.5, 10), (2.0, 15), (9.0, 20), (-9.0, -20)]
)
def test_affine_reward_is_that_of_seta(reward, expected):
    assert shape_reward(reward, 100, RewardShapingSettings(bias=-0.5, scale=10, clip=20)) == expected


def test_the_penalty_comes_before_the_scale():
    shaping = RewardShapingSettings(bias=-0.5, scale=10, overlong_tokens=100, overlong_buffer=50, overlong_factor=0.5)
    assert shape_reward(1.0, 100, shaping) == pytest.approx((1.0 - 0.5 - 0.5) * 10)


def test_loss_weights_equal_hand_computed_ones():
    sampled = [2, 6]
    assert token_loss_weights(sampled, LossAggregation.TOKEN_MEAN) == [1 / 8, 1 / 8]
    assert token_loss_weights(sampled, LossAggregation.SEQUENCE_MEAN) == [1 / 4, 1 / 12]
    assert token_loss_weights(sampled, LossAggregation.CONSTANT, 10) == [1 / 20, 1 / 20]
    for kind in (LossAggregation.TOKEN_MEAN, LossAggregation.SEQUENCE_MEAN):
        shares = token_loss_weights(sampled, kind)
        assert sum(share * count for share, count in zip(shares, sampled, strict=True)) == pytest.approx(1)
        assert token_loss_weights([], kind) == []
        assert token_loss_weights([0], kind) == [1.0], "a trajectory without a sampled token divides nothing"


def turns_of(*rewards: float, tokens: int = 3) -> Segment:
    """A prompt of one token, then turns of ``tokens``, each with an observation of one token behind it."""
    length = 1 + len(rewards) * (tokens + 1)
    turns, mask = [Turn(TurnKind.PROMPT, 0, 1)], np.zeros(length, np.uint8)
    for index, reward in enumerate(rewards):
        start = 1 + index * (tokens + 1)
        turns.append(Turn(TurnKind.MODEL, start, start + tokens, reward=reward))
        turns.append(Turn(TurnKind.OBSERVATION, start + tokens, start + tokens + 1))
        mask[start : start + tokens] = 1
    return Segment(
        np.arange(length, dtype=np.int32), mask, -mask.astype(np.float32), np.where(mask, 0, -1).astype(np.int32),
        tuple(turns),
    )  # fmt: skip


def episode(group: int, sample: int, reward: float, *segments: Segment) -> bytes:
    return pack_trajectory(
        Trajectory(
            RolloutRequest("run", GroupId(group), sample, 4, "task", 0),
            EpisodeStatus.COMPLETED,
            Reward(reward),
            segments,
        )
    )


def read(payload, **objective):
    lineage = Lineage()
    lineage.add(WeightVersion(0), 0, NO_VERSION)
    return read_batch(payload, lineage, WeightVersion(0), make_spec("unused", objective=make_objective(**objective)))


def score(own: float, *all_of_them: float) -> float:
    return (own - statistics.mean(all_of_them)) / (statistics.stdev(all_of_them) + 1e-6)


def test_turn_advantages_compare_turns_with_the_same_index():
    """A good third step of a bad episode is told apart from its first; who has no third step is not compared there."""
    payload = [
        episode(0, 0, 1.0, turns_of(0.0, 0.5, 0.0)),
        episode(0, 1, 0.0, turns_of(0.0, 0.25)),
        episode(0, 2, 0.0, turns_of(1.0)),
        episode(1, 0, 1.0, turns_of(0.0)),
        episode(1, 1, 1.0, turns_of(0.0)),
    ]
    batch = read(payload, advantage="turn")
    found = [sample.columns.advantages.reshape(-1, 3)[:, 0].tolist() for sample in batch.samples]
    assert found[0] == pytest.approx([score(1.0, 1.0, 0.0, 1.0), score(1.5, 1.5, 0.25), 0.0], rel=1e-5)
    assert found[1] == pytest.approx([score(0.0, 1.0, 0.0, 1.0), score(0.25, 1.5, 0.25)], rel=1e-5)
    assert found[2] == pytest.approx([score(1.0, 1.0, 0.0, 1.0)], rel=1e-5)
    assert found[3:] == [[0.0], [0.0]], "no variance"
    for sample in batch.samples:
        assert (np.ptp(sample.columns.advantages.reshape(-1, 3), axis=1) == 0).all(), "a turn's tokens are alike"


@pytest.mark.parametrize("advantage", AdvantageEstimator)
def test_the_largest_rewards_give_finite_advantages(advantage):
    """Larger ones reach no batch: with 1e308 the advantages are not numbers."""
    rewards = (MAX_REWARD, MAX_REWARD, 0.0, -MAX_REWARD)
    batch = read([episode(0, sample, each, turns_of(each)) for sample, each in enumerate(rewards)], advantage=advantage)
    for sample in batch.samples:
        assert np.isfinite(np.square(sample.columns.advantages)).all()


def test_a_turn_without_loss_has_no_index_among_the_turns():
    """A title shifts no turn of an episode against those of the others, and weighs on no token."""
    title = mark_roles([turns_of(0.0)], [ReplyRole.AUXILIARY], ASIDES)
    others = [episode(0, sample, float(sample), turns_of(0.25 * sample, 0.5)) for sample in (1, 2)]
    marked, plain = (
        read([episode(0, 0, 1.0, *segments, turns_of(1.0, 0.0)), *others], advantage="turn") for segments in (title, ())
    )
    for one, other in zip(marked.samples, plain.samples, strict=True):
        assert one.columns.advantages.tolist() == other.columns.advantages.tolist()
        assert one.columns.weights.tolist() == other.columns.weights.tolist()
    assert [batch.metrics["auxiliary_turns"] for batch in (marked, plain)] == [1, 0]
    assert [batch.metrics["turns"] for batch in (marked, plain)] == [6, 6]


def test_reward_shaping_applies_to_the_sum_of_turn_and_episode_rewards():
    """A bound or a penalty for length holds for what is compared, not for a part of it."""
    payload = [
        episode(0, 0, 1.0, turns_of(3.0)),
        episode(0, 1, 0.0, turns_of(0.5)),
        episode(0, 2, 0.0, turns_of(0.0)),
    ]
    batch = read(payload, advantage="turn", shaping=RewardShapingSettings(bias=-0.5, scale=10, clip=20))
    found = [float(sample.columns.advantages[0]) for sample in batch.samples]
    assert found == pytest.approx([score(each, 20.0, 0.0, -5.0) for each in (20.0, 0.0, -5.0)], rel=1e-5)


def test_shuffled_rewards_include_turn_rewards():
    """Otherwise a judge's scores would still train the policy, and the control would not show chance alone."""
    lineage = Lineage()
    lineage.add(WeightVersion(0), 0, NO_VERSION)
    payload = [episode(group, sample, 0.0, turns_of(float(sample))) for group in range(8) for sample in range(2)]

    def good(*, shuffle: bool) -> int:
        settings = make_spec("unused", objective=make_objective(advantage="turn"), shuffle_rewards=shuffle)
        samples = read_batch(payload, lineage, WeightVersion(0), settings).samples
        return sum(float(sample.columns.advantages[0]) > 0 for sample in samples[1::2])

    assert good(shuffle=False) == 8
    assert good(shuffle=True) < 8


def test_step_metrics_report_the_mean_of_each_reward_part():
    """A judge that fails every vote is seen in no other figure."""
    request = RolloutRequest("run", GroupId(0), 0, 4, "task", 0)
    made = Trajectory(
        request, EpisodeStatus.COMPLETED, Reward(1.0, {"judge_down": 3.0, "bonus": 0.5}), (turns_of(0.0),)
    )
    other = replace(made, request=replace(request, sample=1), reward=Reward(0.0, {"judge_down": 1.0}))
    metrics = read([pack_trajectory(made), pack_trajectory(other)]).metrics
    assert (metrics["part_judge_down"], metrics["part_bonus"]) == (2.0, 0.5)


def test_step_advantages_of_an_episode_cut_at_a_turn():
    whole, other = turns_of(0.0, 1.0), episode(0, 1, 0.0, turns_of(0.5, 0.5))
    at = whole.turns[2].end

    def piece(cut: slice, parent: int) -> Segment:
        inside = [turn for turn in whole.turns if cut.start <= turn.start < cut.stop]
        return Segment(
            whole.token_ids[cut],
            whole.loss_mask[cut],
            whole.logprobs[cut],
            whole.versions[cut],
            tuple(turn._replace(start=turn.start - cut.start, end=turn.end - cut.start) for turn in inside),
            parent=parent,
            offset=cut.start,
        )

    pieces = [piece(slice(0, at), -1), piece(slice(at, len(whole)), 0)]
    one, cut = (read([episode(0, 0, 1.0, *made), other], advantage="turn") for made in ([whole], pieces))
    assert one.samples[0].columns.advantages[0] != one.samples[0].columns.advantages[-1]
    np.testing.assert_array_equal(one.samples[0].columns.advantages, cut.samples[0].columns.advantages)


def test_batch_advantages_are_over_all_groups():
    payload = [episode(group, 0, reward, turns_of(0.0)) for group, reward in enumerate((1.0, 0.0, 0.5))]
    batch = read(payload, advantage="batch", shaping=RewardShapingSettings(bias=-0.5, scale=10))
    found = [float(sample.columns.advantages[0]) for sample in batch.samples]
    assert found == pytest.approx([score(reward, 5, -5, 0) for reward in (5, -5, 0)], rel=1e-5)


def test_sequence_mean_gives_long_and_short_episodes_equal_weight():
    payload = [episode(0, 0, 1.0, turns_of(0.0)), episode(0, 1, 0.0, turns_of(0.0, 0.0, 0.0))]
    sums = [float(s.columns.weights.sum()) for s in read(payload, aggregation="sequence_mean").samples]
    assert sums == pytest.approx([0.5, 0.5])
    sums = [float(s.columns.weights.sum()) for s in read(payload).samples]
    assert sums == pytest.approx([0.25, 0.75])


def test_a_branch_joins_a_sequence_only_at_its_end():
    """Two branches from one point: the first goes on with the trunk, the second is a sequence with a silent prefix."""
    trunk = turns_of(0.0)
    branch = [
        Segment(
            np.array([50 + n, 60 + n], np.int32), np.array([0, 1], np.uint8), np.array([0, -1], np.float32),
            np.array([-1, 0], np.int32), parent=0, offset=len(trunk),
        )
        for n in range(2)
    ]  # fmt: skip
    batch = read([episode(0, 0, 1.0, trunk, *branch), episode(0, 1, 0.0, turns_of(0.0))])
    assert [sample.token_ids.tolist() for sample in batch.samples[:2]] == [
        [0, 1, 2, 3, 4, 50, 60],
        [0, 1, 2, 3, 4, 51, 61],
    ]
    assert [sample.targets.tolist() for sample in batch.samples[:2]] == [[1, 2, 3, 6], [6]], "each sampled token once"
    assert {sample.trajectory_index for sample in batch.samples[:2]} == {0}
