"""Attempts at a practice task, and the replies in which an agent makes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias, cast

from actors.agents.agent import ActionOutcome, Agent
from actors.agents.bash_block import SUBMIT
from actors.agents.settings import AgentKind
from actors.tokens.chat_messages import ChatMessage
from protocol.events import JsonValue
from sandbox.tasks.task import Task


class CommandAttempt(NamedTuple):
    """Runs one command, and is done."""

    command: str


class AnswerAttempt(NamedTuple):
    """Runs a piece of Python, and then answers."""

    code: str
    answer: str


class PageAttempt(NamedTuple):
    """Answers at the sight of the task's first page."""

    answer: str


Attempt: TypeAlias = CommandAttempt | AnswerAttempt | PageAttempt


def write_conversation(kind: str, agent: Agent, task: Task, attempt: Attempt) -> dict[str, JsonValue]:
    """Return an attempt as a conversation for ``longshore sft``, with the messages that the agent's episodes have."""
    messages = agent.opening_messages(task)
    replies = write_replies(kind, agent, attempt)
    for reply in replies:
        messages.append({"role": "assistant", "content": reply})
        messages += _answer_calls(agent, reply) if reply is not replies[-1] else []
    said: list[JsonValue] = [{"role": each["role"], "content": each["content"]} for each in messages]
    return {"messages": said, "tools": [cast("JsonValue", tool.schema) for tool in agent.offered_tools.values()]}


def write_replies(kind: str, agent: Agent, attempt: Attempt) -> tuple[str, ...]:
    """Return an attempt as the replies of an agent of this kind, of which the last one ends it.

    Raises ValueError for a kind that cannot make it."""
    match kind, attempt:
        case AgentKind.HERMES, CommandAttempt(command):
            (tool,) = [each for each in agent.tools.values() if each.name == "shell_exec"]
            named = {"id": "main"} if any(each.name == "id" for each in tool.parameters) else {}
            return _call(tool.name, {**named, "command": command}), "Done."
        case AgentKind.BASH, CommandAttempt(command):
            return _block(command), _block(f"echo {SUBMIT}")
        case AgentKind.CODE_INTERPRETER, AnswerAttempt(code, answer):
            (tool,) = agent.offered_tools.values()
            return _call(tool.name, {"code": code}), answer
        case AgentKind.JSON, PageAttempt(answer):
            return (_action("stop", {"answer": answer}),)
        case _:
            raise ValueError(f"an agent of the kind {kind} makes no {type(attempt).__name__}")


def _call(name: str, arguments: dict[str, str]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _block(command: str) -> str:
    return f"THOUGHT: next.\n\n```bash\n{command}\n```"


def _action(kind: str, params: dict[str, str]) -> str:
    return f"```json\n{json.dumps({'action': {'type': kind, 'params': params}})}\n```"


def _answer_calls(agent: Agent, reply: str) -> Iterable[ChatMessage]:
    outcomes = [ActionOutcome(action, "(no output)", exit_code=0) for action in agent.parse_reply(reply).actions]
    return agent.format_outcomes(outcomes) or ()
