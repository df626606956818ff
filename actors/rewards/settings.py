"""Settings of rewards: the outcome formula, ``[reward]`` and ``[judge]``.

Formulas and their sources are in docs/rewards.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from actors.chat_api.base_url import api_base_url
from actors.rewards.prompts import load_judge_prompt
from actors.rewards.registry import BINARY
from protocol.errors import UserError
from protocol.settings import ConfigSection, PositiveInt, Seconds


class OutcomeSettings(ConfigSection):
    """The formula that turns a grade into a reward."""

    reward: str = BINARY
    """The reward of a grade: ``binary``, ``pass_ratio``, ``pass_ratio_with_bonus``, ``pass_ratio_parallel_penalty``,
    ``signed_pass_ratio``, ``weighted_tests``, ``art`` or ``tcr``."""


class RewardTarget(StrEnum):
    """Target of rewards that are given turn by turn."""

    TOTAL = "total"
    """The episode's reward."""
    TURNS = "turns"
    """Each turn's own reward, in addition to the episode's."""


class ProcessRewardKind(StrEnum):
    """Sets of process-reward rules."""

    NONE = "none"
    ART = "art"
    """The events of the ART seed."""


class RewardSettings(ConfigSection):
    """Rewards that are added to the outcome."""

    bonus: Annotated[float, Field(gt=0)] | None = None
    """Bonus of a full pass beyond its pass ratio, for the rewards that have one: 0.5 in SETA's model card, 1.0 in its
    code."""
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per later turn: each turn gets the outcome times this to the power of the number of later turns; below 1
    only with ``learner.advantage = "turn"``."""
    process: ProcessRewardKind = ProcessRewardKind.NONE
    """Process-reward rules: ``none``, or ``art`` (a command succeeds, code is modified, a call cannot be parsed …)."""
    process_cap: Annotated[float, Field(gt=0)] = 0.2
    """Maximum that the rules add to or subtract from an episode, over all turns."""
    process_target: RewardTarget = RewardTarget.TOTAL
    """Target of the process rewards: the episode's reward, ``total``, or each turn's own, ``turns``."""


class JudgeSettings(ConfigSection):
    """A process reward model: another model that votes 1 or −1 on each turn of a training episode.  Failed votes are
    counted and neutral."""

    enabled: bool = False
    """Score training episodes with a judge."""
    url: str = ""
    """Base URL of its OpenAI-compatible API, for example of an SGLang server: ``http://host:30000/v1``.  Empty for a
    judge that the run serves itself, on engines of its own."""
    model: str = "default"
    """Hugging Face folder of the judge that the run serves itself.  With ``judge.url`` the model's name in the API;
    SGLang accepts any."""
    engines: PositiveInt = 1
    """Number of SGLang servers of the judge's folder, with the device, data type, memory, limits and timeouts of
    ``engine``.  Weight updates leave them alone."""
    tp: PositiveInt = 1
    """Number of GPUs over which each of them is split; they are GPUs of their own, beside the learner's and
    ``engine``'s."""
    key_file: Path | None = None
    """File with the API key of ``judge.url``; without it none is sent."""
    prompt: str = "turn-1"
    """The judge's prompt: a name in ``actors/rewards/prompts``, or the path of your own file, with a /."""
    votes: PositiveInt = 3
    """Number of votes on each turn; the score is the mean of the valid ones."""
    coefficient: float = 1.0
    """Factor of the scores."""
    target: RewardTarget = RewardTarget.TURNS
    """Target of the scores: the turns' own rewards, ``turns``, or their mean is added to the episode's, ``total``."""
    temperature: Annotated[float, Field(ge=0)] = 0.6
    """Sampling temperature; at 0 all votes on a turn are the same."""
    max_new_tokens: PositiveInt = 4096
    """Maximum number of tokens of one vote."""
    vote_timeout_s: Seconds = 60.0
    """Longest wait for one vote."""
    timeout_s: Seconds = 120.0
    """Longest wait for all votes on an episode, queueing included; the episode keeps its slot meanwhile."""
    concurrency: PositiveInt = 16
    """Number of concurrent vote requests of one worker."""

    @property
    def own_model(self) -> Path | None:
        """The folder of the judge that the run serves itself; None without one."""
        return Path(self.model).absolute() if self.enabled and not self.url else None

    @property
    def own_engines(self) -> int:
        """Number of engines that serve that folder."""
        return self.engines if self.own_model is not None else 0

    def make_spec(self) -> JudgeSpec:
        """Read prompt and key.  Raises UserError if one cannot be read."""
        return JudgeSpec(self, load_judge_prompt(self.prompt), _read_key(self.key_file))

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and not re.fullmatch(r"https?://[^\s/?#]+(?:/[^\s?#]*)?", url):
            raise ValueError(f"judge.url = {url!r} is not the address of an API: write it as http://host:30000/v1")
        return url and api_base_url(url)

    @model_validator(mode="after")
    def _check_votes(self) -> Self:
        if self.enabled and not self.url:
            self._check_own_model()
        if self.vote_timeout_s > self.timeout_s:
            raise ValueError(
                f"judge.vote_timeout_s = {self.vote_timeout_s:g} is more than judge.timeout_s = {self.timeout_s:g}, "
                "which includes it: lower the one or raise the other"
            )
        return self

    def _check_own_model(self) -> None:
        if self.model == JudgeSettings.model_fields["model"].default:
            raise ValueError(
                "judge.enabled = true needs a judge: set judge.model to its Hugging Face folder, which the run then "
                "serves itself, or judge.url = 'http://host:30000/v1' to the server that has it"
            )
        if self.key_file is not None:
            raise ValueError("judge.key_file is the key of judge.url, which is not set: set judge.url, or leave it out")


@dataclass(frozen=True, slots=True)
class JudgeSpec:
    """A judge's settings with its prompt's text, its key, and its model's folder."""

    settings: JudgeSettings
    prompt: str
    """The text, with ``$task``, ``$history``, ``$turn`` and ``$result``."""
    key: str = field(default="", repr=False)
    model_path: str = ""
    """Folder, on the worker's machine, of the model that engines of the run serve; empty for a judge behind a URL."""
    context_tokens: int = 0
    """Most tokens of a question and its reply on those engines."""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """Everything that makes a run's reward function."""

    outcome: str
    """A name of :mod:`actors.rewards.registry`."""
    settings: RewardSettings
    judge: JudgeSpec | None = None

    @property
    def judge_s(self) -> float:
        """Longest time that the judge takes for an episode; 0 without one."""
        return self.judge.settings.timeout_s if self.judge is not None else 0.0

    def without_judge(self) -> RewardSpec:
        """Return the same rewards without the judge, for evaluations, whose turns are not trained."""
        return replace(self, judge=None)


def make_reward_spec(outcome: OutcomeSettings, settings: RewardSettings, judge: JudgeSettings) -> RewardSpec:
    """Return the reward spec of a run.  Raises UserError if a judge's prompt or key cannot be read."""
    return RewardSpec(outcome.reward, settings, judge.make_spec() if judge.enabled else None)


def _read_key(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"judge.key_file = '{path}' cannot be read: {error}") from error
    if not key.isascii() or not key.isprintable() or not key:
        raise UserError(f"judge.key_file = '{path}' holds no key: write the key into it on a single line")
    return key
