"""Checks of the reward's tables against each other and against the learner's advantage."""

from __future__ import annotations

from actors.rewards.registry import find_outcome_reward
from actors.rewards.settings import JudgeSettings, ProcessRewardKind, RewardSettings, RewardTarget
from learner.losses.settings import AdvantageEstimator
from protocol.errors import UserError


def check_reward_tables(
    name: str, reward: RewardSettings, judge: JudgeSettings, advantage: AdvantageEstimator
) -> list[str]:
    """Return the keys that contradict each other or would have no effect, one line each."""
    try:
        margin = find_outcome_reward(name, reward.bonus).pass_margin
    except UserError as error:
        return [str(error)]
    problems: list[str] = []
    if (
        reward.process is not ProcessRewardKind.NONE
        and reward.process_target is RewardTarget.TOTAL
        and 2 * reward.process_cap >= margin
    ):
        lower = f"reward.process_cap below {margin / 2:g}, " if margin else ""
        problems.append(
            f"reward.process_cap = {reward.process_cap:g} up and down could make a failed episode worth more than a "
            f"full pass, which rollout.reward = '{name}' puts {margin:g} above it: set {lower}reward.process_target = "
            "'turns', or rollout.reward = 'art'"
        )
    by_turn = {
        "reward.discount = 1": reward.discount < 1,
        "reward.process_target = 'total'": reward.process is not ProcessRewardKind.NONE
        and reward.process_target is RewardTarget.TURNS,
        "judge.target = 'total'": judge.enabled and judge.target is RewardTarget.TURNS,
    }
    if advantage is not AdvantageEstimator.TURN and any(by_turn.values()):
        remedies = " and ".join(remedy for remedy, wanted in by_turn.items() if wanted)
        problems.append(
            f"learner.advantage = '{advantage}' reads no turn's own reward, which would be written for nothing: set "
            f"learner.advantage = 'turn', or {remedies}"
        )
    return problems
