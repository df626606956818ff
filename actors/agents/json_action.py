"""Exactly one action in each reply, as a JSON object: ``{"action": {"type": "shell_exec", "params": {…}}}``.

The shape is that of LIVEWEB's environments.  The object is in a ```` ```json ```` block, or is the whole reply after
its thoughts.  ``stop`` ends the episode; its answers, named ones or one text, are written to the file where the tests
find them (:mod:`sandbox.tools.answer`).
https://github.com/AffineFoundation/liveweb-arena
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from actors.agents.agent import ActionOutcome, AgentToolCall, MalformedAction, ParsedReply, render_opening
from actors.agents.fenced_blocks import UnclosedBlockError, parse_fenced_blocks
from actors.agents.json_objects import InvalidObjectError, read_json
from actors.agents.prompt import PromptTemplate
from actors.tokens.chat_messages import ChatMessage
from actors.tokens.reasoning import UNCLOSED_REASONING, strip_reasoning
from sandbox.tasks.formats.liveweb.web_actions import STOP, stop_answer
from sandbox.tasks.task import Task
from sandbox.tools import Toolset
from sandbox.tools.answer import ANSWER_TOOL

_FORM = 'write one object, {"action": {"type": NAME, "params": {…}}}, in one block ```json'


@dataclass(frozen=True, slots=True)
class JsonActionAgent:
    """Runs the one action of each reply."""

    prompt: PromptTemplate
    actions: Toolset

    @property
    def tools(self) -> Toolset:
        return {**self.actions, ANSWER_TOOL.name: ANSWER_TOOL}

    @property
    def offered_tools(self) -> Toolset:
        return {}

    def opening_messages(self, task: Task) -> list[ChatMessage]:
        return render_opening(self.prompt, task, self.actions)

    def parse_reply(self, reply: str) -> ParsedReply:
        found = _object(reply)
        action = found if isinstance(found, MalformedAction) else self._action(found)
        return ParsedReply([action], final=isinstance(action, AgentToolCall) and action.name == ANSWER_TOOL.name)

    def format_outcomes(self, outcomes: Sequence[ActionOutcome]) -> list[ChatMessage] | None:
        return [{"role": "user", "content": outcome.text} for outcome in outcomes]

    def _action(self, parsed: Mapping[str, object]) -> AgentToolCall | MalformedAction:
        action = parsed.get("action")
        if not isinstance(action, dict):
            return MalformedAction(f'the object has no "action" that is an object: {_FORM}')
        described = cast("dict[str, object]", action)
        kind, params = described.get("type"), described.get("params", {})
        if not isinstance(params, dict):
            return MalformedAction('the action\'s "params" is not an object')
        if kind == STOP:
            return _stop(cast("dict[str, object]", params))
        if not isinstance(kind, str) or kind not in self.actions:
            return MalformedAction(f"no action has the type {kind!r}: the types are {', '.join([*self.actions, STOP])}")
        return AgentToolCall(kind, cast("dict[str, object]", params))


def _object(reply: str) -> dict[str, object] | MalformedAction:
    if (text := strip_reasoning(reply)) is None:
        return MalformedAction(UNCLOSED_REASONING)
    try:
        found = [block.body for block in parse_fenced_blocks(text) if block.language == "json"]
    except UnclosedBlockError:
        return MalformedAction(f"a block of three backticks in the reply has no end: {_FORM}")
    if len(found) > 1:
        return MalformedAction(f"the reply has {len(found)} blocks of JSON: {_FORM}")
    try:
        value = read_json(found[0] if found else text)
    except InvalidObjectError as error:
        return MalformedAction(f"the reply is not valid JSON ({error}): {_FORM}")
    return (
        cast("dict[str, object]", value)
        if isinstance(value, dict)
        else MalformedAction(f"it is not an object: {_FORM}")
    )


def _stop(params: Mapping[str, object]) -> AgentToolCall | MalformedAction:
    if (answer := stop_answer(params)) is not None:
        return AgentToolCall(ANSWER_TOOL.name, {"answer": answer})
    return MalformedAction(
        '"stop" needs its answers: {"type": "stop", "params": {"final": {"answers": {NAME: ANSWER}}}}, or its one '
        'answer: {"type": "stop", "params": {"answer": ANSWER}}'
    )
