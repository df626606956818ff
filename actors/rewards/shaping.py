"""Rewards added to an outcome, for the episode or as each turn's own reward.  Pure.

The learner's advantage ``turn`` gives a turn the sum of the episode's reward and its own, and compares it with the
group's turns of the same index; every other advantage reads the episode's reward alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from protocol.trajectory import ReplyRole, Segment, Turn, TurnKind

_DIGITS = 6
"""Decimal places with which a turn's reward is stored."""


def discounted_turn_rewards(total: float, turns: int, discount: float) -> tuple[float, ...]:
    """Return each turn's own reward, so that with ``total`` it has total · discount^(turns − 1 − t).

    OpenClaw, terminal-rl/generate.py:90-103, where discount is 1; SETA's environment service has 0.9."""
    return tuple(total * (discount ** (turns - 1 - turn) - 1) for turn in range(turns))


def cap_turn_rewards(turns: Sequence[float], cap: float) -> tuple[float, ...]:
    """Clip each reward so that every partial sum stays within ±cap."""
    given: list[float] = []
    reached = 0.0
    for value in turns:
        now = min(max(reached + value, -cap), cap)
        given.append(now - reached)
        reached = now
    return tuple(given)


def attach_turn_rewards(segments: Sequence[Segment], rewards: Sequence[float]) -> tuple[Segment, ...]:
    """Return ``segments`` with the reward of each turn of the agent's work, in their order.

    Raises ValueError if their number is not that of ``rewards``."""
    turns = sum(_is_work(turn) for segment in segments for turn in segment.turns)
    if turns != len(rewards):
        raise ValueError(f"{len(rewards)} rewards for {turns} turns of the agent's work")
    if not any(rewards):
        return tuple(segments)
    left = iter(rewards)
    return tuple(replace(segment, turns=tuple(_rewarded(segment.turns, left))) for segment in segments)


def _rewarded(turns: Sequence[Turn], left: Iterator[float]) -> Iterator[Turn]:
    for turn in turns:
        yield turn._replace(reward=round(next(left), _DIGITS)) if _is_work(turn) else turn


def _is_work(turn: Turn) -> bool:
    return turn.kind is TurnKind.MODEL and turn.role is ReplyRole.WORK
