"""Exactly one action in each reply, as a JSON object: ``{"action": {"type": "shell_exec", "params": {…}}}``.

The shape is that of LIVEWEB's environments.  The object stands in a block ```` ```json ````, or is all that a reply
says after its thoughts.  ``stop`` ends the episode; its answers go to the file where the tests find them.
https://github.com/AffineFoundation/liveweb-arena
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import orjson

from actors.agents.agent import Malformed, Outcome, Reading, ToolCall, opening
from actors.agents.chat import Message
from actors.agents.fences import Unclosed, blocks
from actors.agents.prompt import Prompt
from actors.agents.thoughts import UNENDED, spoken
from sandbox.tasks.task import Task
from sandbox.tools import Toolset
from sandbox.tools.answer import ANSWER

STOP = "stop"
_FORM = 'write one object, {"action": {"type": NAME, "params": {…}}}, in one block ```json'


@dataclass(frozen=True, slots=True)
class JsonActionAgent:
    prompt: Prompt
    actions: Toolset

    @property
    def tools(self) -> Toolset:
        return {**self.actions, ANSWER.name: ANSWER}

    @property
    def offered(self) -> Toolset:
        return {}

    def opening(self, task: Task) -> list[Message]:
        return opening(self.prompt, task, self.actions)

    def read(self, reply: str) -> Reading:
        found = _object(reply)
        action = found if isinstance(found, Malformed) else self._action(found)
        return Reading([action], final=isinstance(action, ToolCall) and action.name == ANSWER.name)

    def tell(self, outcomes: Sequence[Outcome]) -> list[Message] | None:
        return [{"role": "user", "content": outcome.text} for outcome in outcomes]

    def _action(self, said: Mapping[str, object]) -> ToolCall | Malformed:
        action = said.get("action")
        if not isinstance(action, dict):
            return Malformed(f'the object has no "action" that is an object: {_FORM}')
        described = cast("dict[str, object]", action)
        kind, params = described.get("type"), described.get("params", {})
        if not isinstance(params, dict):
            return Malformed('the action\'s "params" is not an object')
        if kind == STOP:
            return _stop(cast("dict[str, object]", params))
        if not isinstance(kind, str) or kind not in self.actions:
            return Malformed(f"no action has the type {kind!r}: the types are {', '.join([*self.actions, STOP])}")
        return ToolCall(kind, cast("dict[str, object]", params))


def _object(reply: str) -> dict[str, object] | Malformed:
    if (said := spoken(reply)) is None:
        return Malformed(UNENDED)
    try:
        found = [block.body for block in blocks(said) if block.language == "json"]
    except Unclosed:
        return Malformed(f"a block of three backticks in the reply has no end: {_FORM}")
    if len(found) > 1:
        return Malformed(f"the reply has {len(found)} blocks of JSON: {_FORM}")
    try:
        value: object = orjson.loads(found[0] if found else said)
    except orjson.JSONDecodeError as error:
        return Malformed(f"the reply is not valid JSON ({error}): {_FORM}")
    return cast("dict[str, object]", value) if isinstance(value, dict) else Malformed(f"it is no object: {_FORM}")


def _stop(params: Mapping[str, object]) -> ToolCall | Malformed:
    """LIVEWEB has the answers under ``final``; they may stand alone."""
    final = params.get("final", params)
    answers = cast("dict[str, object]", final).get("answers") if isinstance(final, dict) else None
    if not isinstance(answers, dict):
        return Malformed('"stop" needs its answers: {"type": "stop", "params": {"final": {"answers": {NAME: ANSWER}}}}')
    return ToolCall(ANSWER.name, {"answer": cast("dict[str, object]", answers)})
