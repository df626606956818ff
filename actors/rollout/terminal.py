"""What an episode needs of a sandbox: tool calls and a grade, as values and protocols without a sandbox behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.trajectory import TestResult


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """The answer of a tool."""

    text: str
    """For the agent."""
    raw: str
    """For the recording, before truncation."""
    exit_code: int | None
    ms: float
    """Tool execution time, which counts as the agent's."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """The result of a task's hidden tests."""

    tests: tuple[TestResult, ...]
    pass_ratio: float
    all_passed: bool
    ms: float
    suspicious: tuple[str, ...] = ()
    """For a full pass: what a person should read, one line each."""
    score: float = 0.0
    """Weight of the passed tests ÷ weight of all; the tests' own reward if that is all that they wrote."""


class SandboxDestroyedByAgent(Exception):
    """The agent destroyed its own sandbox while daemon, host and pool were healthy."""


class Gradable(Protocol):
    """Something that runs the hidden tests.

    Raises :class:`SandboxDestroyedByAgent` if the agent destroyed the sandbox, InfraError if anything else took it."""

    async def grade(self) -> EpisodeGrade:
        """Run the hidden tests."""
        ...


class EpisodeTerminal(Gradable, Protocol):
    """A sandbox as an agent's loop sees it.  Raises as :class:`Gradable` does."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        """Call the tool ``name``; its output goes to ``on_output`` as it comes."""
        ...
