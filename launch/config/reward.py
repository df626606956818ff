"""What an episode is worth beyond the name in ``rollout.reward``: its parameters, process rules, a judge.

Formulas and their sources: docs/rewards.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from actors.rewards.registry import find_outcome_reward
from actors.rewards.settings import ProcessRewardKind, RewardTarget
from learner.losses.settings import AdvantageEstimator
from protocol.errors import UserError
from protocol.settings import ConfigSection, PositiveInt, Seconds


class RewardSection(ConfigSection):
    bonus: Annotated[float, Field(gt=0)] | None = None
    """What a full pass has beyond its pass ratio, in the rewards that have a bonus: 0.5 says SETA's model card, 1.0 its
    code."""
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """A turn has the outcome times this to the number of turns after it; below 1 for ``learner.advantage = "step"``
    only."""
    process: ProcessRewardKind = ProcessRewardKind.NONE
    """Rules that reward how an agent works: ``none``, or ``art`` (a command succeeds, code is modified, a call cannot
    be read …)."""
    process_cap: Annotated[float, Field(gt=0)] = 0.2
    """Most that the rules give or take an episode, all turns together."""
    process_into: RewardTarget = RewardTarget.TOTAL
    """What they give belongs to the episode's reward, ``total``, or to each turn's own, ``turns``."""


class JudgeSection(ConfigSection):
    """A process reward model: another model that votes on each turn of a training episode, 1 or −1.  Failed votes are
    counted and neutral."""

    enabled: bool = False
    """Ask a judge."""
    url: str = ""
    """Base of its OpenAI-compatible API, of an SGLang server for example: ``http://host:30000/v1``."""
    model: str = "default"
    """Its name there; SGLang takes any."""
    key_file: Path | None = None
    """File with the API's key; without it none is sent."""
    prompt: str = "step-1"
    """What it is asked: a prompt of ``actors/rewards/prompts`` by name, or a file of yours by its path, with a /."""
    votes: PositiveInt = 3
    """On each turn; its score is the mean of the valid ones."""
    coefficient: float = 1.0
    """Its scores are multiplied by it."""
    into: RewardTarget = RewardTarget.TURNS
    """The scores are the turns' own rewards, ``turns``, or their mean is added to the episode's, ``total``."""
    temperature: Annotated[float, Field(ge=0)] = 0.6
    """At 0, all votes on a turn are the same."""
    max_new_tokens: PositiveInt = 4096
    """Of one vote."""
    vote_timeout_s: Seconds = 60.0
    """Longest wait for one vote."""
    timeout_s: Seconds = 120.0
    """Longest wait for all votes on an episode, which keeps its place meanwhile."""
    concurrency: PositiveInt = 16
    """Votes that one worker asks for at once."""

    @field_validator("url")
    @classmethod
    def _is_a_base(cls, url: str) -> str:
        if url and not re.fullmatch(r"https?://[^\s/?#]+(?:/[^\s?#]*)?", url):
            raise ValueError(f"judge.url = {url!r} is no address of an API: write it as http://host:30000/v1")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.enabled and not self.url:
            raise ValueError("judge.enabled = true needs whom to ask: set judge.url = 'http://host:30000/v1'")
        if self.vote_timeout_s > self.timeout_s:
            raise ValueError(
                f"judge.vote_timeout_s = {self.vote_timeout_s:g} is more than judge.timeout_s = {self.timeout_s:g}, "
                "which includes it: lower the one or raise the other"
            )
        return self


def check_reward_sections(
    name: str, reward: RewardSection, judge: JudgeSection, advantage: AdvantageEstimator
) -> list[str]:
    """What of it cannot go together, or would have no effect."""
    try:
        margin = find_outcome_reward(name, reward.bonus).pass_margin
    except UserError as error:
        return [str(error)]
    found: list[str] = []
    if (
        reward.process is not ProcessRewardKind.NONE
        and reward.process_into is RewardTarget.TOTAL
        and 2 * reward.process_cap >= margin
    ):
        lower = f"reward.process_cap below {margin / 2:g}, " if margin else ""
        found.append(
            f"reward.process_cap = {reward.process_cap:g} up and down could make a failed episode worth more than a "
            f"full pass, which rollout.reward = '{name}' puts {margin:g} above it: set {lower}reward.process_into = "
            "'turns', or rollout.reward = 'art'"
        )
    by_turn = {
        "reward.discount = 1": reward.discount < 1,
        "reward.process_into = 'total'": reward.process is not ProcessRewardKind.NONE
        and reward.process_into is RewardTarget.TURNS,
        "judge.into = 'total'": judge.enabled and judge.into is RewardTarget.TURNS,
    }
    if advantage is not AdvantageEstimator.STEP and any(by_turn.values()):
        remedies = " and ".join(remedy for remedy, wanted in by_turn.items() if wanted)
        found.append(
            f"learner.advantage = '{advantage}' reads no turn's own reward, which would be written for nothing: set "
            f"learner.advantage = 'step', or {remedies}"
        )
    return found
