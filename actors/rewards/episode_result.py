"""What an episode came to, as a reward sees it: the verdict, and turn by turn what was said and done.

Immutable, and without the tokens.  ``turns`` are the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from protocol.trajectory import EpisodeStatus, TestResult
from sandbox.grading.suspicions import command_text

_ANSWER = "answer"
"""The tool that takes an answer (:mod:`sandbox.tools.answer`), which agents call in the model's name."""


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One call of a tool, and what came of it as far as that is known."""

    tool: str
    command: str
    """Its text arguments, a line each."""
    output: str = ""
    """What the agent was told."""
    exit_code: int | None = None
    """As the agent's own shell reported it: whatever is given for it can be had by a lie, so it is little and
    bounded."""
    timed_out: bool = False


def make_call_record(tool: str, arguments: Mapping[str, object]) -> ToolCallRecord:
    """A call as it was asked for: what it runs is its ``command``, or else all its texts."""
    command = arguments.get("command")
    return ToolCallRecord(tool, command if isinstance(command, str) else command_text(arguments))


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One turn of the model."""

    text: str
    calls: tuple[ToolCallRecord, ...] = ()
    """Those that could be read, up to ``agent.max_calls`` of a reply, whether or not there was time to run them."""
    malformed: bool = False
    """It held a call that could not."""

    @property
    def tool_call_count(self) -> int:
        """Calls of tools.  To give an answer is none: else whoever answered at once would have called one."""
        return sum(call.tool != _ANSWER for call in self.calls)


@dataclass(slots=True)
class EpisodeTranscript:
    """An episode's turns, as they happen."""

    turns: list[ModelTurn] = field(default_factory=list[ModelTurn])
    _answered: int = 0
    """Of the last turn's calls."""

    def add_turn(self, text: str, calls: Sequence[ToolCallRecord] = (), *, malformed: bool) -> None:
        self.turns.append(ModelTurn(text, tuple(calls), malformed))
        self._answered = 0

    def add_tool_result(self, output: str, exit_code: int | None, *, timed_out: bool) -> None:
        """What came of the last turn's next call."""
        last, calls = self.turns[-1], list(self.turns[-1].calls)
        calls[self._answered] = replace(calls[self._answered], output=output, exit_code=exit_code, timed_out=timed_out)
        self.turns[-1] = replace(last, calls=tuple(calls))
        self._answered += 1

    @property
    def last_content(self) -> str:
        return self.turns[-1].text if self.turns else ""


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    instruction: str
    status: EpisodeStatus
    tests: tuple[TestResult, ...]
    pass_ratio: float
    """Passed ÷ all, 0 when there is no test."""
    all_passed: bool
    """What is called a pass, whatever the reward's total is."""
    score: float
    """Weight of what passed ÷ weight of all, or what the tests' own reward file said, 0 … 1."""
    turns: tuple[ModelTurn, ...] = ()
    sampled_tokens: int = 0

    @property
    def tool_call_count(self) -> int:
        """Of tools, in all turns."""
        return sum(turn.tool_call_count for turn in self.turns)

    @property
    def max_calls_in_turn(self) -> int:
        """Calls of the turn that made the most."""
        return max((turn.tool_call_count for turn in self.turns), default=0)
