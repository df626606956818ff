"""If these fail, the monitor's memory grows with the number of a run's files and with what they have, an event is lost,
or a long line takes all of its time."""

from __future__ import annotations

import time
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


def bytes_read() -> int:
    """Number of bytes that this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_torn_line_is_searched_once(tmp_path: Path) -> None:
    path, size = tmp_path / "lines.jsonl", 8 << 20
    path.write_bytes(b"first\n" + b"a" * size)
    tail = FileTail(path)
    assert [line.raw for line in tail.read_lines(1 << 20).lines] == [b"first"]
    before = bytes_read()
    for _ in range(4):
        with path.open("ab") as file:
            file.write(b"b")
        assert tail.read_lines(1 << 20).lines == []
    assert bytes_read() - before < 2 * size
    with path.open("ab") as file:
        file.write(b"\nlast\n")
    assert [line.raw for line in tail.read_lines(1 << 30).lines] == [b"a" * size + b"bbbb", b"last"]


@pytest.mark.parametrize("polls", [True, False], ids=["a poll between", "no poll between"])
def test_a_torn_line_that_its_writer_takes_back_is_forgotten(tmp_path: Path, *, polls: bool) -> None:
    """A writer takes back a line for which the disk had no room."""
    path, tail = tmp_path / "lines.jsonl", FileTail(tmp_path / "lines.jsonl")
    path.write_bytes(b"first\n" + b"a" * 100)
    assert [line.raw for line in tail.read_lines(1 << 20).lines] == [b"first"]
    path.write_bytes(b"first\n")
    if polls:
        assert tail.read_lines(1 << 20).lines == []
    lines = [b"second", b"", b"b" * 200]
    path.write_bytes(b"\n".join((b"first", *lines)) + b"\n")
    found = tail.read_lines(1 << 20)
    assert ([line.raw for line in found.lines], found.replaced) == (lines, False)
    assert tail.offset == path.stat().st_size


def test_what_was_searched_of_a_torn_line_is_void_in_another_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"a" * 100)
    tail = FileTail(path)
    assert tail.read_lines(1).lines == []
    path.rename(tmp_path / "old.jsonl")
    path.write_bytes(b"b\n" * 100)
    assert [line.raw for line in tail.read_lines(1 << 20).lines] == [b"b"] * 100


def test_a_long_line_takes_time_that_grows_with_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tail, "MIN_CHUNK_BYTES", 1024)
    monkeypatch.setattr(file_tail, "MAX_CHUNK_BYTES", 1024)
    path = tmp_path / "lines.jsonl"

    def least_time_s(length: int) -> float:
        path.write_bytes(b"a" * length + b"\n")
        took = list[float]()
        for _ in range(3):
            before = time.process_time()
            assert len([*FileTail(path).iter_lines()]) == 1
            took.append(time.process_time() - before)
        return min(took)

    assert least_time_s(2 << 20) < 24 * least_time_s(256 << 10)
