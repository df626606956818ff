"""If these fail, data sets in the form in which most are published are not read, or read with keys that they lack."""

from __future__ import annotations

import datetime as dt
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.files.parquet import MAX_BATCH_BYTES, read_parquet_rows, rows_at_once
from tests.support.tasks.parquet_files import write_parquet

pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")


def test_a_parquet_row_equals_its_json_row(tmp_path: Path) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": "Do it."}], "score": 0.5, "tags": ["a", "b"]},
        {"prompt": [{"role": "user", "content": "Do\nthat.", "name": "ann"}], "extra": {"depth": {"n": 3}}, "tags": []},
    ]
    file = write_parquet(tmp_path / "rows [1].parquet", rows)
    assert list(read_parquet_rows(file)) == rows


def test_rows_of_several_batches_come_in_order(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "many.parquet", [{"n": number} for number in range(1000)])
    assert [row["n"] for row in read_parquet_rows(file)] == list(range(1000))


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more", b'{"a": 1}\n'])
def test_a_file_that_is_not_parquet_is_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "rows.parquet"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        list(read_parquet_rows(file))


def write_text_rows(file: Path, rows: int, value: Callable[[int], str]) -> Path:
    """Write one row group of a column of text, a row at a time."""
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(file, schema, dictionary_pagesize_limit=1 << 30, compression="zstd") as writer:
        for row in range(rows):
            writer.write_batch(pa.record_batch([[value(row)]], schema=schema), row_group_size=rows)
    return file


READ_IN_A_CHILD = """\
import resource, sys
from pathlib import Path
import pyarrow.parquet
from protocol.files.parquet import read_parquet_rows
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(1 for row in read_parquet_rows(Path(sys.argv[1])))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def own_text(row: int) -> str:
    return f"{row:02}" * (1 << 20)


def shared_text(_: int) -> str:
    return "x" * (2 << 20)


@pytest.mark.parametrize("value", [own_text, shared_text])
def test_rows_of_2_mib_are_read_in_256_mib(tmp_path: Path, value: Callable[[int], str]) -> None:
    file = write_text_rows(tmp_path / "large.parquet", 300, value)
    done = subprocess.run([sys.executable, "-c", READ_IN_A_CHILD, str(file)], check=True, capture_output=True)
    rows, peak_kib = map(int, done.stdout.split())
    assert rows == 300
    assert peak_kib < 256 << 10


def test_a_row_beyond_the_limit_is_refused_in_words(tmp_path: Path) -> None:
    large = [2, MAX_BATCH_BYTES + 1]
    file = write_text_rows(tmp_path / "larger.parquet", 2, lambda row: "x" * large[row])
    rows = read_parquet_rows(file)
    assert next(rows) == {"text": "xx"}
    with pytest.raises(ValueError, match=r"^rows 2 to 2 hold 128 MiB, and 128 MiB are the most: leave out such rows"):
        next(rows)


@given(st.integers(0, 1 << 40))
def test_no_more_rows_at_once_than_64_mib_hold_if_each_is_all_that_is_stored(stored: int) -> None:
    rows = rows_at_once(stored)
    assert 1 <= rows <= 256
    assert rows == 1 or rows * stored <= 64 << 20


def test_values_are_those_of_python(tmp_path: Path) -> None:
    row = {"map": {"a": 1}, "bytes": b"\0\xff", "day": dt.date(2026, 1, 2), "parts": [{"n": 1}]}
    types = [pa.map_(pa.string(), pa.int64()), pa.binary(), pa.date32(), pa.list_(pa.struct([("n", pa.int64())]))]
    schema = pa.schema(list(zip(row, types, strict=True)))
    pq.write_table(pa.Table.from_pylist([row], schema=schema), tmp_path / "kinds.parquet")
    assert list(read_parquet_rows(tmp_path / "kinds.parquet")) == [row]
