"""Rewards from the hidden tests and from the number of tool calls.  Pure functions, each with its source.

Every reward has the parts ``pass_ratio`` and ``all_passed``: a pass means that all tests passed, whatever the total is.
Further parts are what was added to the total, by name.  Line numbers in other systems' code refer to the commits that
docs/rewards.md names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from actors.rewards.episode_result import EpisodeResult
from protocol.trajectory import Reward

OutcomeFormula: TypeAlias = Callable[[EpisodeResult], Reward]

MAX_PENALTY = 0.2
"""Maximum penalty for calling many tools in one turn."""
_FREE_CALLS, _CALL_PENALTY = 5, 0.05
_WRONG, _STILL_WRONG, _TENTHS = -1.0, -0.6, 10


def binary(result: EpisodeResult) -> Reward:
    """1 when every hidden test passed, else 0: Harbor's own reward, and miles'."""
    return _reward(float(result.all_passed), result)


def pass_ratio(result: EpisodeResult) -> Reward:
    """p = passed ÷ all tests.  SETA, seta_env/verifiers/reward_fn.py:4-20."""
    return _reward(result.pass_ratio, result)


def pass_ratio_with_bonus(result: EpisodeResult, bonus: float) -> Reward:
    """p + bonus · [all passed].  SETA, seta_env/verifiers/reward_fn.py:23-44: its model card says bonus 0.5, its code
    1.0."""
    added = bonus * result.all_passed
    return _reward(result.pass_ratio + added, result, bonus=added)


def pass_ratio_parallel_penalty(result: EpisodeResult, bonus: float) -> Reward:
    """p + bonus · [all passed] − min(0.05 · max(0, m − 5), 0.2), m being the most calls of one turn.  SETA,
    seta_env/verifiers/reward_fn.py:47-93."""
    whole = pass_ratio_with_bonus(result, bonus)
    penalty = min(_CALL_PENALTY * max(0, result.max_calls_in_turn - _FREE_CALLS), MAX_PENALTY)
    return Reward(whole.total - penalty, {**whole.parts, "parallel_penalty": -penalty})


def signed_pass_ratio(result: EpisodeResult) -> Reward:
    """2p − 1.  OpenClaw, terminal-rl/generate.py:69."""
    return _reward(2 * result.pass_ratio - 1, result)


def weighted_tests(result: EpisodeResult) -> Reward:
    """Weight of the tests that passed ÷ weight of all, by a task's ``weights.json``; what the task's own reward file
    says, where it is all that the tests wrote.  SETA-Synth's tasks have the file, and its code reads it nowhere."""
    return _reward(result.score, result, score=result.score)


def art(result: EpisodeResult) -> Reward:
    """1 when all tests passed, else p ÷ 2.  The ART seed's README, "Process Rewards"."""
    return _reward(1.0 if result.all_passed else 0.5 * result.pass_ratio, result)


def tcr(result: EpisodeResult) -> Reward:
    """+1 when all tests passed, else min(−0.6, −1 + k ÷ 10), k being the number of tool calls: −1.0, −0.9, −0.8, −0.7,
    and −0.6 from the fourth on.  GRPO-TCR, Open-AgentRL recipe/demystify/reward.py:165-178, where k is counted in
    turns."""
    if result.all_passed:
        return _reward(1.0, result, tool_calls=0.0)
    total = min(_STILL_WRONG, _WRONG + result.tool_call_count / _TENTHS)
    return _reward(total, result, tool_calls=total - _WRONG)


def _reward(total: float, result: EpisodeResult, **added: float) -> Reward:
    return Reward(total, {"pass_ratio": result.pass_ratio, "all_passed": float(result.all_passed), **added})
