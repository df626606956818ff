"""The agent types keystrokes and reads the screen, like Terminal-Bench's own agent.

Each reply is one JSON object, ``{"analysis", "plan", "commands": [{"keystrokes", "duration"}], "task_complete"}``; text
around it is ignored.  If any part is invalid, nothing is typed, because half of the input may do harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import orjson

from actors.agents.agent import ActionOutcome, AgentAction, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_format import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, strip_reasoning
from sandbox.tasks.task import Task
from sandbox.tools import TERMINAL_BENCH, Toolset
from sandbox.tools.keystrokes import KEYSTROKES_TOOL

_FORM = 'write one object, {"commands": [{"keystrokes": "ls\\n", "duration": 0.5}], "task_complete": false}'
_LOOK = AgentToolCall(KEYSTROKES_TOOL.name, {"keystrokes": "", "duration": 0})


@dataclass(frozen=True, slots=True)
class KeystrokesAgent:
    """Types the commands of each reply into a terminal."""

    prompt: PromptTemplate

    @property
    def tools(self) -> Toolset:
        return TERMINAL_BENCH

    @property
    def offered_tools(self) -> Toolset:
        return {}

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, self.tools)

    def parse_reply(self, reply: str) -> ParsedReply:
        found = _object(reply)
        if isinstance(found, MalformedAction):
            return ParsedReply([found])
        commands, complete = found.get("commands", []), found.get("task_complete", False)
        if not isinstance(commands, list) or not isinstance(complete, bool):
            return ParsedReply(
                [MalformedAction(f'"commands" is not a list, or "task_complete" neither true nor false: {_FORM}')]
            )
        actions = [_action(command) for command in cast("list[object]", commands)]
        if wrong := [action for action in actions if isinstance(action, MalformedAction)]:
            return ParsedReply(wrong)
        return ParsedReply(actions if actions or complete else [_LOOK], final=complete)

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        """Return the screen as the last keystrokes left it."""
        wrong = [outcome.text for outcome in outcomes if isinstance(outcome.action, MalformedAction)]
        return [{"role": "user", "content": "\n".join(wrong) or outcomes[-1].text}]


def _object(reply: str) -> dict[str, object] | MalformedAction:
    if (text := strip_reasoning(reply)) is None:
        return MalformedAction(UNCLOSED_REASONING)
    begin, end = text.find("{"), text.rfind("}")
    if end < begin or begin < 0:
        return MalformedAction(f"the reply holds no JSON object: {_FORM}")
    try:
        value: object = orjson.loads(text[begin : end + 1])
    except orjson.JSONDecodeError as error:
        return MalformedAction(f"the reply's object is not valid JSON ({error}), and nothing was typed: {_FORM}")
    return cast("dict[str, object]", value)


def _action(command: object) -> AgentAction:
    if isinstance(command, dict):
        arguments = cast("dict[str, object]", command)
        if isinstance(arguments.get("keystrokes"), str):
            return AgentToolCall(KEYSTROKES_TOOL.name, arguments)
    return MalformedAction(f'a command has no "keystrokes" that are a string, and nothing was typed: {_FORM}')
