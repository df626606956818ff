"""If these fail, data sets in the form in which most are published are not read, or read with keys that they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.files.parquet import read_parquet_rows
from tests.support.tasks.parquet_files import write_parquet


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
