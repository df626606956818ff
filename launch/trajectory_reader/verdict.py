"""Defines the verdict on an episode, as evaluations and replays record it."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.trajectory import EpisodeStatus, TestResult


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """The outcome of one episode."""

    passed: bool
    """Whether all tests passed, whatever the reward is."""
    reward: float
    pass_ratio: float
    """Number of passed tests ÷ number of tests."""
    status: EpisodeStatus
    parts: dict[str, float] = field(default_factory=dict[str, float])
    """Components of the reward by name."""
    tests: tuple[TestResult, ...] = ()
