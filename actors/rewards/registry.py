"""Outcome rewards by the names of ``rollout.reward``: the one place where a name becomes a function.

A package adds one as an entry point of the group ``longshore.rewards``: a callable from :class:`EpisodeResult` to a
:class:`~protocol.trajectory.Reward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from actors.rewards import outcome
from actors.rewards.episode_result import EpisodeResult
from actors.rewards.outcome import OutcomeFormula
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin, plugin_names
from protocol.trajectory import Reward

BINARY = "binary"


@dataclass(frozen=True, slots=True)
class OutcomeReward:
    """A formula, and the margin by which it separates passes."""

    formula: OutcomeFormula
    pass_margin: float
    """Minimum distance of every full pass above everything less; 0 if one more test can be worth almost nothing."""


_PLAIN: Mapping[str, OutcomeReward] = {
    BINARY: OutcomeReward(outcome.binary, 1.0),
    "pass_ratio": OutcomeReward(outcome.pass_ratio, 0.0),
    "signed_pass_ratio": OutcomeReward(outcome.signed_pass_ratio, 0.0),
    "weighted_tests": OutcomeReward(outcome.weighted_tests, 0.0),
    "art": OutcomeReward(outcome.art, 0.5),
    "tcr": OutcomeReward(outcome.tcr, 1.6),
}
_WITH_BONUS: Mapping[str, tuple[Callable[[EpisodeResult, float], Reward], float]] = {
    "pass_ratio_with_bonus": (outcome.pass_ratio_with_bonus, 0.0),
    "pass_ratio_parallel_penalty": (outcome.pass_ratio_parallel_penalty, outcome.MAX_PENALTY),
}
"""Name → formula of an episode and a bonus, and the maximum that it subtracts from a full pass."""


def list_outcome_rewards() -> tuple[str, ...]:
    """Return the names of all outcome rewards, built-in and plugins."""
    return (*_PLAIN, *_WITH_BONUS, *plugin_names(PluginGroup.REWARDS))


def find_outcome_reward(name: str, bonus: float | None = None) -> OutcomeReward:
    """Return the reward called ``name``.  Raises UserError for an unknown name, or a bonus that is missing or
    unused."""
    if name in _WITH_BONUS:
        formula, penalty = _WITH_BONUS[name]
        if bonus is None:
            raise UserError(
                f"rollout.reward = '{name}' needs its bonus for a full pass: set reward.bonus = 0.5, as SETA's model "
                "card says, or 1.0, as its code does"
            )
        return OutcomeReward(lambda result: formula(result, bonus), max(0.0, bonus - penalty))
    if name not in (known := list_outcome_rewards()):
        raise UserError(f"rollout.reward = '{name}' is none of {', '.join(known)}{did_you_mean(name, known)}")
    if bonus is not None:
        raise UserError(
            f"reward.bonus = {bonus:g} is not used by rollout.reward = '{name}': leave it out, or set "
            "rollout.reward = 'pass_ratio_with_bonus'"
        )
    return _PLAIN[name] if name in _PLAIN else _find_plugin(name)


def _find_plugin(name: str) -> OutcomeReward:
    """Return a plugin's reward, whose margin is not known."""
    formula = load_plugin(PluginGroup.REWARDS, name)
    if not callable(formula):
        raise UserError(
            f"rollout.reward = '{name}' is not a reward: its entry point has to be a callable from "
            "actors.rewards.episode_result.EpisodeResult to protocol.trajectory.Reward (docs/plugins.md)"
        )
    return OutcomeReward(cast("OutcomeFormula", formula), 0.0)
