"""Attempts at tasks of the web as LIVEWEB's samples, which ``longshore sft --data`` reads.  Pure.

``{"task_id", "score", "trajectory": [{"observation", "action"}]}``: an action is the object that the agent wrote, or
the whole reply if it says more than that.  The system's message is left out, as the format has no place for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import orjson

from protocol.evaluation import AttemptRecord
from protocol.events import JsonValue
from sandbox.tasks.formats.liveweb.rows import row_task_id
from sandbox.tasks.task import Task

_BLOCK = re.compile(r"\s*```json\s*\n(.*)\n```\s*", re.DOTALL)


def build_liveweb_sample(
    task: Task, record: AttemptRecord, trajectory: Mapping[str, JsonValue]
) -> dict[str, JsonValue] | None:
    """Return an attempt's sample; None for a task without a start page, or an attempt without a verdict or a reply."""
    messages = cast("list[Mapping[str, JsonValue]]", trajectory.get("messages") or [])
    steps: list[JsonValue] = []
    observed: list[str] = []
    for message in messages:
        if message["role"] == "assistant":
            steps.append({"observation": "\n\n".join(observed), "action": _action(str(message.get("content") or ""))})
            observed = []
        elif message["role"] != "system":
            observed.append(str(message.get("content") or ""))
    if not task.start_url or record.verdict is None or not steps:
        return None
    return {"task_id": row_task_id(task), "score": record.verdict.reward, "trajectory": steps}


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
