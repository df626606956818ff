"""Writes ShareGPT conversations, one per line, as ``launch.sft`` and others read them.  Pure.

A reply is the text that was sampled, thoughts and calls included, so that training on it trains what was said.  Beside
the conversation stand the tools that the model's template named, as a string of JSON, and the reward as ``score``.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import orjson

from launch.export.selection import ExportItem
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory

_FROM = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


class ShareGptMessage(msgspec.Struct, frozen=True, rename={"speaker": "from"}):
    speaker: str
    value: str


class ShareGptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    conversations: list[ShareGptMessage]
    task: str
    model: str
    tools: str | None = None
    score: float | None = None
    passed: bool | None = None


def to_sharegpt(item: ExportItem) -> ShareGptRecord:
    recorded, origin = item
    verdict = recorded.verdict
    tools = [tool.schema for tool in origin.agent.offered_tools.values()]
    return ShareGptRecord(
        recorded.name,
        [
            ShareGptMessage(_FROM.get(message["role"], message["role"]), message["content"])
            for message in recorded.messages
        ],
        recorded.task,
        origin.model,
        orjson.dumps(tools).decode() if tools else None,
        verdict.reward if verdict else None,
        verdict.passed if verdict else None,
    )


def is_representable(recorded: RecordedTrajectory) -> bool:
    """Return whether each reply has text and answers somebody: readers refuse others."""
    roles = [message["role"] for message in recorded.messages]
    answers = ("assistant", "assistant") not in pairwise(["assistant", *roles])
    return answers and all(reply.text.strip() for reply in recorded.replies)
