"""The interface between an episode and its sandbox: tool calls and grades, as values and protocols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.trajectory import TestResult


@dataclass(frozen=True, slots=True)
class TerminalLimits:
    """Limits of an episode's use of its sandbox."""

    acquire_s: float
    """Maximum seconds until there is a sandbox."""
    command_s: float
    """Maximum seconds of one command of the agent."""
    grade_s: float
    """Maximum seconds of the hidden tests; a task may allow less."""
    cleanup_s: float
    """Maximum seconds that the episode waits for the removal of its sandbox."""
    observation_chars: int
    """Maximum number of characters of a command's output that the agent reads."""


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """The result of a tool call."""

    text: str
    """Text that the agent reads."""
    raw: str
    """Output before truncation, for the recording."""
    exit_code: int | None
    ms: float
    """Milliseconds of tool execution, which count as the agent's time."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """The result of a task's hidden tests."""

    tests: tuple[TestResult, ...]
    pass_ratio: float
    all_passed: bool
    ms: float
    suspicious: tuple[str, ...] = ()
    """Signs of cheating in a full pass that a person should check, one line each."""
    score: float = 0.0
    """Weight of the passed tests ÷ weight of all; the tests' own reward if they wrote nothing else."""


class SandboxDestroyedByAgent(Exception):
    """The agent destroyed its own sandbox while daemon, host and pool were healthy."""


class Grader(Protocol):
    """Something that runs the hidden tests.

    Raises :class:`SandboxDestroyedByAgent` if the agent destroyed the sandbox, InfraError if it was lost otherwise."""

    async def grade(self) -> EpisodeGrade:
        """Run the hidden tests."""
        ...


class EpisodeTerminal(Grader, Protocol):
    """A sandbox as the agent's loop sees it.  Raises as :class:`Grader` does."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        """Call the tool ``name``; its output is passed to ``on_output`` as it arrives."""
        ...
