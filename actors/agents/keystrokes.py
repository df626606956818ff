"""The agent types keystrokes and reads the screen, like Terminal-Bench's own agent.

Each reply has one JSON object, ``{"analysis", "plan", "commands": [{"keystrokes", "duration"}], "task_complete"}``;
text around it is ignored, braces and objects without ``commands`` and ``task_complete`` included, valid or
not.  If any part is invalid, nothing is typed, because half of the input may do harm; nor is a part of an object that
is invalid itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from actors.agents.agent import ActionOutcome, AgentAction, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.json_objects import find_object_begin, split_objects
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, strip_reasoning
from sandbox.tasks.task import Task
from sandbox.tools import TERMINAL_BENCH, Toolset
from sandbox.tools.keystrokes import KEYSTROKES_TOOL

_FORM = 'write one object, {"commands": [{"keystrokes": "ls\\n", "duration": 0.5}], "task_complete": false}'
_KEYS = ("commands", "task_complete")
_KEY = re.compile(rf"""(["'])(?:{"|".join(_KEYS)})\1\s*:""")
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
    objects, texts, problem = split_objects(text)
    scripts = [place for place, each in enumerate(objects) if not each.keys().isdisjoint(_KEYS)]
    if problem and not scripts:
        return MalformedAction(f"the reply's object is not valid JSON ({problem}), and nothing was typed: {_FORM}")
    if not objects:
        return MalformedAction(f"the reply holds no valid JSON object: {_FORM}")
    if not scripts:
        return MalformedAction(f"the reply's object has none of {', '.join(_KEYS)}, and nothing was typed: {_FORM}")
    if len(scripts) > 1:
        return MalformedAction(f"the reply holds {len(scripts)} objects, and nothing was typed: {_FORM}")
    (place,) = scripts
    if _holds_object("".join(texts[: place + 1]), "".join(texts[place + 1 :])):
        return MalformedAction(
            f"the reply's object is part of one that is not valid JSON, and nothing was typed: {_FORM}"
        )
    return objects[place]


def _holds_object(before: str, after: str) -> bool:
    """Return whether the texts around an object have another one that is not JSON, such as Python's: braces around the
    object, the beginning of one that does not end before it, or one of its keys after a brace."""
    is_inside = _leaves_open(before[find_object_begin(before) :], "{", "}") or (
        _leaves_open(before, "{", "}") and _leaves_open(reversed(after), "}", "{")
    )
    return is_inside or _KEY.search((before + after).partition("{")[2]) is not None


def _leaves_open(text: Iterable[str], begin: str, end: str) -> bool:
    depth = 0
    for each in text:
        if each == begin:
            depth += 1
        elif each == end:
            depth = max(0, depth - 1)
    return depth > 0


def _action(command: object) -> AgentAction:
    if isinstance(command, dict):
        arguments = cast("dict[str, object]", command)
        if isinstance(arguments.get("keystrokes"), str):
            return AgentToolCall(KEYSTROKES_TOOL.name, arguments)
    return MalformedAction(f'a command has no "keystrokes" that are a string, and nothing was typed: {_FORM}')
