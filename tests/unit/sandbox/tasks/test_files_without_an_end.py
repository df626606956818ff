"""If these fail, a pipe, a device or a sparse file in a data set's place lets a command hang, or fills the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.data import conversations
from launch.data.conversations import TrainingDataError, read_conversations
from protocol.errors import UserError
from sandbox.tasks.dataset_catalog import read_catalog
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task_selection import read_patterns

READERS: dict[str, Callable[[Path], object]] = {
    "rows.jsonl": load_tasks,
    "rows.json": load_tasks,
    "rows.parquet": load_tasks,
    "ids.txt": lambda path: read_patterns(str(path)),
    "datasets.toml": read_catalog,
    "records.jsonl": lambda path: list(read_conversations(path)),
    "records.json": lambda path: list(read_conversations(path)),
    "records.parquet": lambda path: list(read_conversations(path)),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_refused_in_words(tmp_path: Path, name: str) -> None:
    """A device that has an end stands for all: reading another would hang the test."""
    path = tmp_path / name
    path.symlink_to(os.devnull)
    with pytest.raises(UserError, match="it is not a regular file"):
        READERS[name](path)


@pytest.mark.parametrize("name", [name for name in READERS if not name.endswith(("parquet", "records.jsonl"))])
def test_a_file_that_memory_cannot_hold_is_refused_in_words(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    os.truncate(path, 1 << 43)
    with pytest.raises(UserError, match="it is larger than 1024 MiB"):
        READERS[name](path)


def test_a_record_without_an_end_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "records.jsonl"
    path.touch()
    os.truncate(path, 64 << 20)
    with pytest.raises(TrainingDataError, match=r"records.jsonl:1: the line is longer than 1 MiB"):
        list(read_conversations(path))
