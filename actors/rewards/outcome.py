"""Rewards from the hidden tests, and from how many tools were called.  Pure functions, each with its source.

Every one has the parts ``pass_ratio`` and ``all_passed``: a pass is that all tests passed, whatever the total is.
Further parts are what was added to the total, by name.  Lines of other systems' code are as of the commits that
docs/rewards.md names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from actors.rewards.played import Played
from protocol.trajectory import Reward

Formula: TypeAlias = Callable[[Played], Reward]

MOST_PENALTY = 0.2
"""For calling many tools in one turn."""
_FREE_CALLS, _CALL_PENALTY = 5, 0.05
_WRONG, _STILL_WRONG, _TENTHS = -1.0, -0.6, 10


def binary(played: Played) -> Reward:
    """1 when every hidden test passed, else 0: Harbor's own reward, and miles'."""
    return _reward(float(played.all_passed), played)


def pass_ratio(played: Played) -> Reward:
    """p = passed ÷ all tests.  SETA, seta_env/verifiers/reward_fn.py:4-20."""
    return _reward(played.pass_ratio, played)


def pass_ratio_with_bonus(played: Played, bonus: float) -> Reward:
    """p + bonus · [all passed].  SETA, seta_env/verifiers/reward_fn.py:23-44: its model card says bonus 0.5, its code
    1.0."""
    added = bonus * played.all_passed
    return _reward(played.pass_ratio + added, played, bonus=added)


def pass_ratio_parallel_penalty(played: Played, bonus: float) -> Reward:
    """p + bonus · [all passed] − min(0.05 · max(0, m − 5), 0.2), m the most calls of one turn.  SETA,
    seta_env/verifiers/reward_fn.py:47-93."""
    whole = pass_ratio_with_bonus(played, bonus)
    penalty = min(_CALL_PENALTY * max(0, played.widest - _FREE_CALLS), MOST_PENALTY)
    return Reward(whole.total - penalty, {**whole.parts, "parallel_penalty": -penalty})


def signed_pass_ratio(played: Played) -> Reward:
    """2p − 1.  OpenClaw, terminal-rl/generate.py:69."""
    return _reward(2 * played.pass_ratio - 1, played)


def weighted_tests(played: Played) -> Reward:
    """Weight of the tests that passed ÷ weight of all, by a task's ``weights.json``; what the task's own reward file
    says, where it is all that the tests wrote.  SETA-Synth's tasks have the file, and its code reads it nowhere."""
    return _reward(played.score, played, score=played.score)


def art(played: Played) -> Reward:
    """1 when all tests passed, else p ÷ 2.  The ART seed's README, "Process Rewards"."""
    return _reward(1.0 if played.all_passed else 0.5 * played.pass_ratio, played)


def tcr(played: Played) -> Reward:
    """+1 when all tests passed, else min(−0.6, −1 + k ÷ 10), k the calls of tools: −1.0, −0.9, −0.8, −0.7, and −0.6
    from the fourth on.  GRPO-TCR, Open-AgentRL recipe/demystify/reward.py:165-178, where k is counted in turns."""
    if played.all_passed:
        return _reward(1.0, played, tool_calls=0.0)
    total = min(_STILL_WRONG, _WRONG + played.calls / _TENTHS)
    return _reward(total, played, tool_calls=total - _WRONG)


def _reward(total: float, played: Played, **added: float) -> Reward:
    return Reward(total, {"pass_ratio": played.pass_ratio, "all_passed": float(played.all_passed), **added})
