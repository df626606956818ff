"""If these fail, the monitor's memory grows with the number of a run's files and with what they have, or an event is
lost."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import orjson
import pytest

from protocol.run_directory import file_tail
from protocol.run_directory.file_tail import FileTail
from protocol.run_directory.run_tail import RunTail

_FILES = 16
_FILE_BYTES = 1 << 20


def test_a_reader_that_begins_at_the_start_holds_little_of_each_file(tmp_path: Path) -> None:
    """A browser that opens the page of a run with many workers reads all of their events: whole files would be held
    at a time, by each browser."""
    (tmp_path / "events").mkdir()
    for number in range(_FILES):
        line = orjson.dumps({"t": float(number), "kind": "episode.turn", "detail": "x" * 200}) + b"\n"
        (tmp_path / "events" / f"worker-{number}.jsonl").write_bytes(line * (_FILE_BYTES // len(line)))
    tail = RunTail(tmp_path)
    tracemalloc.start()
    try:
        assert len(tail.read(100)) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < _FILES * _FILE_BYTES / 4


@pytest.mark.parametrize("length", [1, 1_000, file_tail.MIN_CHUNK_BYTES, 3 * file_tail.MAX_CHUNK_BYTES])
def test_lines_of_any_length_are_read_whole(tmp_path: Path, length: int) -> None:
    path = tmp_path / "lines.jsonl"
    lines = [b"a" * length, b"", b"b" * (length - 1), b"c"]
    path.write_bytes(b"\n".join(lines) + b"\ntorn")
    found = [*FileTail(path).iter_lines()]
    assert [line.raw for line in found] == lines
    assert found[-1].end_offset == path.stat().st_size - len(b"torn")
