"""The interface between an episode and its sandbox: tool calls and grades, as values and protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    picture: bytes | None = field(default=None, repr=False)
    """A JPEG of what the agent's browser shows after the call, for people."""


@dataclass(frozen=True, slots=True)
class EpisodeGrade:
    """The result of a task's hidden tests."""

    tests: tuple[TestResult, ...]
    pass_ratio: float
    all_passed: bool
    ms: float
    suspicious: tuple[str, ...] = ()
    """Signs of cheating that a person should check, one line each."""
    score: float = 0.0
    """Weight of the passed tests ÷ weight of all; the tests' own reward if they wrote nothing else."""
    isolation: str = ""
    """Owner of the programs that ran the tests (:class:`sandbox.grading.isolation.decision.Isolation`).

    It is empty if no tests ran."""
    step_rewards: Mapping[str, float] = field(default_factory=dict[str, float])
    """Reward of each step that was played, by name, if the task has steps."""
    goes_on: bool = False
    """The grade is that of the steps so far, and the sandbox is ready for the task's next one."""


class SandboxDestroyedByAgent(Exception):
    """The agent destroyed its own sandbox while daemon, host and pool were healthy."""


class Grader(Protocol):
    """Something that runs the hidden tests.

    Raises :class:`SandboxDestroyedByAgent` if the agent destroyed the sandbox, InfraError if it was lost otherwise."""

    async def grade(self, last_reply: str) -> EpisodeGrade:
        """Run the hidden tests; of a task of several steps those of the one that was played, and prepare the next.

        ``last_reply`` is the agent's; the tests of some tasks take a program from it
        (:attr:`sandbox.tasks.task.Task.reply_program`)."""
        ...


class EpisodeTerminal(Grader, Protocol):
    """A sandbox as the agent's loop sees it.  Raises as :class:`Grader` does."""

    async def call(self, name: str, arguments: dict[str, object], on_output: Callable[[str], None]) -> ToolCallResult:
        """Call the tool ``name``; its output is passed to ``on_output`` as it arrives."""
        ...
