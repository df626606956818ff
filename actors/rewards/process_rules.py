"""Process rewards for each turn: one rule per event of the ART seed.  Pure.

Source: README.md of the ART seed, "Process Rewards", and rewards/process_rewards.py, with its faults fixed: a valid
command has its reward, a pattern matches what it says and not nearly everything, and an unparseable call costs its turn
and not the episode's outcome.  The caller bounds the sum over all turns
(:func:`actors.rewards.shaping.cap_turn_rewards`), because all rules but two can be satisfied for free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.rewards.episode_result import ModelTurn, ToolCallRecord
from actors.rewards.shell_commands import is_idle, modifies_code, touches_tests
from sandbox.tools import BROWSER

SHELLS = frozenset({"shell_exec", "bash", "shell_write_to_process"})
"""Tools whose command is run by a shell."""
WRITERS = frozenset({"shell_write_content_to_file"})
"""Tools that write a file."""
_PAUSE = "wait"
_ACTIONS = BROWSER.keys() - {_PAUSE, "read", "view_more"}
"""Tools that do something in a browser."""
MAX_TURN_REWARD = 0.1

_CONTEXT = re.compile(
    r"^Traceback \(most recent call last\)|^E   +\S|^FAILED \S+::|^\S+:\d+(?::\d+)?: (?:fatal )?error\b|"
    r"^error\[E\d+\]|^thread '.*' panicked at|^[ \t]+at \S+ \(?\S+:\d+:\d+\)?$",
    re.MULTILINE,
)
MAX_SEARCHED_CHARS = 16 << 10
"""Characters of a call's output, from its end, that are searched for an error."""


def _shell(turn: ModelTurn) -> list[ToolCallRecord]:
    return [call for call in turn.calls if call.tool in SHELLS]


def _actions(turn: ModelTurn) -> list[ToolCallRecord]:
    return [call for call in turn.calls if call.tool in _ACTIONS]


def _went_well(call: ToolCallRecord) -> bool:
    """Return whether a call succeeded, as far as known: some tools have no exit code."""
    return not call.timed_out and (
        call.exit_code == 0 or (call.exit_code is None and not call.output.startswith("Err"))
    )


def _was_done(action: ToolCallRecord) -> bool:
    return bool(action.output) and _went_well(action)


def valid_command(turn: ModelTurn) -> bool:
    """Match a turn that runs a command that can have an effect, or does something in a browser."""
    return any(not is_idle(call.command) for call in _shell(turn)) or any(map(_was_done, _actions(turn)))


def command_succeeds(turn: ModelTurn) -> bool:
    """Match a turn whose commands all exited with 0, and whose actions in a browser were all done."""
    commands_succeed = all(call.exit_code == 0 for call in _shell(turn))
    return valid_command(turn) and commands_succeed and all(map(_was_done, _actions(turn)))


def code_modified(turn: ModelTurn) -> bool:
    """Match a turn that wrote a file other than a log."""
    return any(
        _went_well(call) and (call.tool in WRITERS or (call.tool in SHELLS and modifies_code(call.command)))
        for call in turn.calls
    )


def tests_discovered(turn: ModelTurn) -> bool:
    """Match a turn that ran or read tests, whatever the result."""
    return any(touches_tests(call.command) for call in _shell(turn))


def error_context(turn: ModelTurn) -> bool:
    """Match a turn whose output locates a failure: a traceback, a failed assertion, a compiler's message.  What a web
    page says is none."""
    return any(_CONTEXT.search(call.output[-MAX_SEARCHED_CHARS:]) for call in turn.calls if call.tool not in BROWSER)


def timeout(turn: ModelTurn) -> bool:
    """Match a turn with a call that exceeded its time."""
    return any(call.timed_out for call in turn.calls)


def no_op(turn: ModelTurn) -> bool:
    """Match a turn that only ran commands without an effect, or only waited for a page."""
    return bool(turn.calls) and all(
        call.tool == _PAUSE or (call.tool in SHELLS and is_idle(call.command)) for call in turn.calls
    )


def invalid_format(turn: ModelTurn) -> bool:
    """Match a turn with a call that did not parse.  No other rule applies to it."""
    return turn.malformed


@dataclass(frozen=True, slots=True)
class ProcessRule:
    """A predicate on a turn and the reward if it applies."""

    applies: Callable[[ModelTurn], bool]
    value: float

    @property
    def name(self) -> str:
        """The name of the reward part."""
        return self.applies.__name__


RULES = (
    ProcessRule(valid_command, 0.01),
    ProcessRule(command_succeeds, 0.02),
    ProcessRule(code_modified, 0.03),
    ProcessRule(tests_discovered, 0.02),
    ProcessRule(error_context, 0.01),
    ProcessRule(timeout, -0.02),
    ProcessRule(no_op, -0.01),
)
MALFORMED_RULE = ProcessRule(invalid_format, -0.05)


@dataclass(frozen=True, slots=True)
class ProcessRewards:
    """Rewards of the rules, before the sum is bounded."""

    turns: tuple[float, ...]
    """The reward of each turn, within ±0.1."""
    rules: dict[str, float]
    """The sum of each rule that applied, over all turns."""


def score_turns(turns: Sequence[ModelTurn]) -> ProcessRewards:
    """Return the process rewards of an episode's turns."""
    given: list[float] = []
    rules: dict[str, float] = {}
    for turn in turns:
        found = [MALFORMED_RULE] if MALFORMED_RULE.applies(turn) else [rule for rule in RULES if rule.applies(turn)]
        for rule in found:
            rules[rule.name] = rules.get(rule.name, 0.0) + rule.value
        given.append(min(max(sum(rule.value for rule in found), -MAX_TURN_REWARD), MAX_TURN_REWARD))
    return ProcessRewards(tuple(given), rules)
