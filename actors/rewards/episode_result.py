"""The result of an episode as a reward function sees it: the grade, and the text and calls of each turn.

Immutable, and without tokens.  ``turns`` are the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from protocol.trajectory import EpisodeStatus, TestResult
from sandbox.grading.suspicions import command_text

_ANSWER = "answer"
"""The tool that takes an answer (:mod:`sandbox.tools.answer`), which agents call on the model's behalf."""


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One tool call, and its outcome if known."""

    tool: str
    command: str
    """Its text arguments, one a line."""
    output: str = ""
    """Output as the agent read it."""
    exit_code: int | None = None
    """Exit code as the agent's own shell reported it.  An agent can fake it, so rewards for it are small and
    bounded."""
    timed_out: bool = False


def make_call_record(tool: str, arguments: Mapping[str, object]) -> ToolCallRecord:
    """Return the record of a call; its command is the argument ``command``, or else all text arguments."""
    command = arguments.get("command")
    return ToolCallRecord(tool, command if isinstance(command, str) else command_text(arguments))


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One turn of the model."""

    text: str
    calls: tuple[ToolCallRecord, ...] = ()
    """Calls that parsed, at most ``agent.max_calls``, even if there was no time to run them."""
    malformed: bool = False
    """True if it contained a call that did not parse."""

    @property
    def tool_call_count(self) -> int:
        """Number of tool calls.  Giving an answer is not one: otherwise an immediate answer would count as a call."""
        return sum(call.tool != _ANSWER for call in self.calls)


@dataclass(slots=True)
class EpisodeTranscript:
    """The turns of an episode as they happen."""

    turns: list[ModelTurn] = field(default_factory=list[ModelTurn])
    _answered: int = 0
    """Number of the last turn's calls that have a result."""

    def add_turn(self, text: str, calls: Sequence[ToolCallRecord] = (), *, malformed: bool) -> None:
        self.turns.append(ModelTurn(text, tuple(calls), malformed))
        self._answered = 0

    def add_tool_result(self, output: str, exit_code: int | None, *, timed_out: bool) -> None:
        """Add the result of the last turn's next call."""
        last, calls = self.turns[-1], list(self.turns[-1].calls)
        calls[self._answered] = replace(calls[self._answered], output=output, exit_code=exit_code, timed_out=timed_out)
        self.turns[-1] = replace(last, calls=tuple(calls))
        self._answered += 1

    @property
    def last_content(self) -> str:
        return self.turns[-1].text if self.turns else ""


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """Everything that a reward is computed from."""

    instruction: str
    status: EpisodeStatus
    tests: tuple[TestResult, ...]
    pass_ratio: float
    """Passed ÷ all tests; 0 if there is none."""
    all_passed: bool
    """True if the episode passed, whatever the reward's total."""
    score: float
    """Weight of the passed tests ÷ weight of all, or the value in the tests' own reward file; 0 … 1."""
    turns: tuple[ModelTurn, ...] = ()
    sampled_tokens: int = 0

    @property
    def tool_call_count(self) -> int:
        """Number of tool calls in all turns."""
        return sum(turn.tool_call_count for turn in self.turns)

    @property
    def max_calls_in_turn(self) -> int:
        """Number of calls of the turn with the most."""
        return max((turn.tool_call_count for turn in self.turns), default=0)
