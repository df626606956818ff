"""Attempts at tasks of the web as LIVEWEB's samples, which ``longshore sft --data`` reads.  Pure.

``{"task_id", "score", "trajectory": [{"observation", "action"}]}``: an action is the object that the agent wrote, or
the whole reply if it says more than that.  The score is the share of right answers, whatever a recipe's reward adds to
it.  The system's message is left out, as the format has no place for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from launch.evaluation.results.trainable_messages import NOT_GRADED, NoSample, find_conversation
from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from sandbox.tasks.formats.liveweb.rows import row_task_id
from sandbox.tasks.task import Task

_BLOCK = re.compile(r"\s*+```json[^\S\n]*+\n(.*)\n```\s*", re.DOTALL)


def build_liveweb_sample(
    task: Task, record: AttemptRecord, trajectory: Mapping[str, JsonValue]
) -> dict[str, JsonValue] | NoSample | None:
    """Return an attempt's sample, or why it has none; None for a task without a start page."""
    if not task.start_url:
        return None
    if record.verdict is None:
        return NOT_GRADED
    if isinstance(messages := find_conversation(trajectory), NoSample):
        return messages
    if any(message.get("tool_calls") for message in messages):
        return NoSample("the model called functions, for which a sample of LIVEWEB's has no place")
    steps: list[JsonValue] = []
    observed: list[str] = []
    for message in messages:
        if message["role"] == "assistant":
            if message["content"]:
                steps.append({"observation": "\n\n".join(observed), "action": _action(message["content"])})
                observed = []
        elif message["role"] != "system":
            observed.append(message["content"])
    if not steps:
        return NoSample("no reply has a text")
    return {"task_id": row_task_id(task), "score": record.verdict.pass_ratio, "trajectory": steps}


def _action(reply: str) -> JsonValue:
    """Return the action of a reply that is nothing else; the reply as it is otherwise."""
    block = _BLOCK.fullmatch(reply)
    try:
        value = orjson.loads(block[1] if block else reply)
    except orjson.JSONDecodeError:
        return reply
    match value:
        case {"action": dict()} if len(value) == 1:
            return value["action"]
        case _:
            return reply
