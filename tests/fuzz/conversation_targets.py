"""Conversations for supervised training, as lines of JSON and as Parquet."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from launch.data.conversations import read_conversations
from protocol.errors import UserError
from protocol.files.parquet import read_parquet_rows
from tests.fuzz.fuzz_target import FuzzFindingError, FuzzTarget, InputKind
from tests.support.tasks.parquet_files import write_parquet


@cache
def _folder() -> Path:
    """Return a folder that stays for the process's life."""
    folder = Path(tempfile.mkdtemp(prefix="longshore-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _conversations(data: bytes) -> None:
    for suffix in (".jsonl", ".json"):
        path = _folder() / f"rows{suffix}"
        path.write_bytes(data)
        try:
            found = list(read_conversations(path))
        except UserError as error:
            str(error).encode()
            continue
        for each in found:
            if not each.trained_messages or each.weight < 0:
                raise FuzzFindingError("a conversation without loss is read")
            json.dumps(each.messages).encode()


def _parquet(data: bytes) -> None:
    path = _folder() / "rows.parquet"
    path.write_bytes(data)
    try:
        for _ in read_parquet_rows(path):
            pass
    except ValueError as error:
        if "\n" in str(error):
            raise FuzzFindingError(f"the error has several lines: {error}") from error


_CALL = {"name": "shell", "arguments": '{"command": "ls"}'}
_RECORDS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "system", "content": "x"},
            {"role": "user", "content": [{"type": "text", "text": "y"}]},
            {"role": "assistant", "content": "z", "reasoning_content": "w", "tool_calls": [{"function": _CALL}]},
            {"role": "tool", "content": "a.txt"},
            {"role": "assistant", "content": "Done.", "train": False},
        ],
        "tools": [{"type": "function", "function": {"name": "shell", "parameters": {}}}],
        "score": 1.0,
        "weight": 2,
    },
    {
        "conversations": [
            {"from": "human", "value": "x"},
            {"from": "function_call", "value": json.dumps(_CALL)},
            {"from": "observation", "value": "a"},
            {"from": "gpt", "value": "y", "weight": 0},
        ],
        "system": "s",
        "tools": "[]",
    },
    {"extra": {"conversation": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "score": 0},
    {"trajectory": [{"observation": {"url": "a"}, "action": {"type": "stop", "params": {}}}], "reward": 0.5},
    {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "function_call": _CALL}]},
]


def _parquet_corpus() -> list[bytes]:
    path = _folder() / "good.parquet"
    return [write_parquet(path, rows).read_bytes() for rows in ([_RECORDS[0]], [{"a": 1, "b": [1.5]}, {"a": None}])]


def _record_corpus() -> list[bytes]:
    records = [json.dumps(each).encode() for each in _RECORDS]
    return [*records, b"\n".join(records), b"[%s]" % b",".join(records)]


TARGETS = [
    FuzzTarget("conversations", InputKind.JSON, _conversations, _record_corpus),
    FuzzTarget("parquet", InputKind.TEXT, _parquet, _parquet_corpus),
]
