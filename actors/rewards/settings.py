"""What a run's configuration says of its rewards, as workers get it.  Light: nothing here speaks to anybody."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from actors.rewards.registry import BINARY
from protocol.settings import ConfigSection


class OutcomeSettings(ConfigSection):
    """Which formula turns a grade into a reward."""

    reward: str = BINARY
    """The reward of a grade: ``binary``, ``pass_ratio``, ``pass_ratio_with_bonus``, ``pass_ratio_parallel_penalty``,
    ``signed_pass_ratio``, ``weighted_tests``, ``art`` or ``tcr``."""


class RewardTarget(StrEnum):
    """Where something belongs that is given turn by turn."""

    TOTAL = "total"
    """The episode's reward."""
    TURNS = "turns"
    """Each turn's own reward, beside the episode's."""


class ProcessRewardKind(StrEnum):
    """Rules that reward how an agent works."""

    NONE = "none"
    ART = "art"
    """The ART seed's events: :mod:`actors.rewards.process_rules`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Of :class:`actors.rewards.judge.Judge`."""

    url: str
    """Base of an OpenAI-compatible API, ``/v1`` included."""
    model: str
    prompt: str
    """The text itself, with ``$task``, ``$history``, ``$step`` and ``$result``."""
    key: str = field(default="", repr=False)
    votes: int = 1
    """On each turn."""
    coefficient: float = 1.0
    into: RewardTarget = RewardTarget.TURNS
    temperature: float = 0.0
    max_new_tokens: int = 4096
    vote_timeout_s: float = 60.0
    """Of one vote, from when it is asked for."""
    timeout_s: float = 120.0
    """Of all votes on one episode, waiting included."""
    concurrency: int = 16
    """Votes of one worker that are asked for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings:
    outcome: str = BINARY
    """A name of :mod:`actors.rewards.registry`."""
    bonus: float | None = None
    discount: float = 1.0
    process: ProcessRewardKind = ProcessRewardKind.NONE
    process_cap: float = 0.2
    """Bound of what the rules give an episode, up or down."""
    process_into: RewardTarget = RewardTarget.TOTAL
    judge: JudgeSettings | None = None

    @property
    def judge_s(self) -> float:
        """What a judge may take for an episode."""
        return self.judge.timeout_s if self.judge is not None else 0.0
