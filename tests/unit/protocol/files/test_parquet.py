"""If these fail, data sets in the form in which most are published are not read, or read with keys that they lack."""

from __future__ import annotations

import datetime as dt
import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.files import parquet_decoder
from protocol.files.parquet import read_parquet_rows
from protocol.files.parquet_decoder import MAX_ROW_BYTES, MAX_ROW_VALUES, MEMORY_BYTES
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


def write_texts(file: Path, texts: Sequence[str], rows: int) -> Path:
    """Write one row group of a column that has the texts in turn, each stored once."""
    column = pa.DictionaryArray.from_arrays(pa.array([row % len(texts) for row in range(rows)], pa.int32()), texts)
    options = {"compression": "zstd", "store_schema": False, "write_statistics": False}
    pq.write_table(pa.table({"text": column}), file, dictionary_pagesize_limit=1 << 30, **options)
    assert pq.ParquetFile(file).metadata.num_row_groups == 1
    return file


READ_IN_A_CHILD = """\
import resource, sys
from pathlib import Path
import pyarrow.parquet
from protocol.files.parquet import read_parquet_rows
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    rows = sum(1 for row in read_parquet_rows(Path(sys.argv[1])))
except ValueError as error:
    rows = error
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - own)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(rows)
"""


def read_elsewhere(file: Path) -> str:
    """Return the number of rows, or the error, of a reading whose memory stayed in its bounds."""
    command = [sys.executable, "-c", READ_IN_A_CHILD, str(file)]
    own_kib, decoder_kib, said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert int(own_kib) < 256 << 10
    assert int(decoder_kib) < (MEMORY_BYTES >> 10) + (256 << 10)  # its programs are not data
    return said


@pytest.mark.parametrize(("texts", "rows"), [(64, 64), (1, 300)], ids=["their own", "shared"])
def test_rows_of_2_mib_are_read_in_little_memory(tmp_path: Path, texts: int, rows: int) -> None:
    file = write_texts(tmp_path / "large.parquet", [f"{text:02}" * (1 << 20) for text in range(texts)], rows)
    assert read_elsewhere(file) == str(rows)


def test_rows_that_do_not_fit_into_memory_together_are_read_one_at_a_time(tmp_path: Path) -> None:
    assert read_elsewhere(write_texts(tmp_path / "larger.parquet", ["x" * (16 << 20)], 60)) == "60"


def varint(number: int) -> bytes:
    """Encode a number as Parquet's footer does."""
    number, encoded = number << 1, b""
    while number >= 128:
        encoded, number = encoded + bytes([number & 127 | 128]), number >> 7
    return encoded + bytes([number])


def test_sizes_that_a_file_gives_itself_are_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "forged.parquet"
    write_texts(file, ["x" * (30 << 20)], 256)
    said = varint(pq.ParquetFile(file).metadata.row_group(0).total_byte_size)
    file.write_bytes(file.read_bytes().replace(said, b"\x82" + b"\x80" * (len(said) - 2) + b"\x00"))
    assert pq.ParquetFile(file).metadata.row_group(0).total_byte_size == 1
    assert file.stat().st_size < 2000
    assert "rows already hold far more than a file of its size can" in read_elsewhere(file)


def test_a_value_that_a_row_has_many_times_is_refused(tmp_path: Path) -> None:
    """By the file's schema Arrow keeps it once; as Python's values they would be 4 GiB."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4096, pa.int32()), pa.array(["x" * (1 << 20)]))
    file = tmp_path / "shared.parquet"
    pq.write_table(pa.table({"list": pa.ListArray.from_arrays(pa.array([0, 4096], pa.int32()), texts)}), file)
    assert "row 1 holds more than 128 MiB" in read_elsewhere(file)


TENSOR = pa.fixed_shape_tensor(pa.bool_(), [1])


@pytest.mark.parametrize(
    ("lists", "each"),
    [
        (pa.list_(pa.bool_()), 1),
        (pa.list_(pa.dictionary(pa.int32(), pa.string())), 1),
        (pa.list_(pa.struct([("a", pa.bool_())])), 2),
        (pa.map_(pa.int32(), pa.bool_()), 3),
        (TENSOR, 1),
    ],
    ids=str,
)
def test_a_row_of_many_values_is_refused_however_few_bits_they_have(tmp_path: Path, lists: Any, each: int) -> None:
    items = (MAX_ROW_VALUES - 3) // each  # the row, its two fields
    kind = pa.fixed_shape_tensor(pa.bool_(), [items + 1]) if lists is TENSOR else lists
    storage = pa.list_(pa.bool_(), items + 1) if lists is TENSOR else lists
    values = [(number, None) for number in range(items + 1)] if pa.types.is_map(lists) else [None] * (items + 1)
    table = pa.table({"a": pa.array([1]), "b": pa.array([values], storage).cast(kind)})
    pq.write_table(table, tmp_path / "many.parquet")
    with pytest.raises(
        ValueError, match=r"^row 1 holds more than 128 MiB, or more than 200,000 values: leave out such"
    ):
        list(read_parquet_rows(tmp_path / "many.parquet"))


def test_rows_of_many_values_together_are_read(tmp_path: Path) -> None:
    rows = [{"list": list(range(1000))}] * 300
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert list(read_parquet_rows(tmp_path / "rows.parquet")) == rows


def test_a_large_group_of_small_rows_is_read_many_at_a_time(tmp_path: Path) -> None:
    """One at a time took 40 times as long."""
    file = write_texts(tmp_path / "group.parquet", [f"{row:08}" * 1024 for row in range(2000)], 2000)
    assert len(list(parquet_decoder.encode_rows(file))) == 8


def test_rows_beyond_what_a_file_of_its_size_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of nulls take no bytes."""
    monkeypatch.setattr(parquet_decoder, "ANY_FILE_BYTES", 1 << 20)
    pq.write_table(pa.table({"a": pa.nulls(100_000)}), tmp_path / "nulls.parquet")
    with pytest.raises(ValueError, match=r"^the first [\d,]+ rows already hold far more than a file of its size can$"):
        list(parquet_decoder.encode_rows(tmp_path / "nulls.parquet"))


def test_a_row_beyond_the_limit_is_refused_in_words(tmp_path: Path) -> None:
    rows = read_parquet_rows(write_texts(tmp_path / "larger.parquet", ["xx", "x" * (MAX_ROW_BYTES + 1)], 2))
    assert next(rows) == {"text": "xx"}
    with pytest.raises(
        ValueError, match=r"^row 2 holds more than 128 MiB, or more than 200,000 values: leave out such"
    ):
        next(rows)


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_no_process_is_left_by_a_reading_that_is_given_up(tmp_path: Path) -> None:
    before = children()
    rows = read_parquet_rows(write_texts(tmp_path / "rows.parquet", ["x" * (2 << 20)], 300))
    next(rows)
    assert children() - before
    rows.close()
    assert not children() - before


def test_values_are_those_of_python(tmp_path: Path) -> None:
    row = {"map": {"a": 1}, "bytes": b"\0\xff", "day": dt.date(2026, 1, 2), "parts": [{"n": 1}]}
    types = [pa.map_(pa.string(), pa.int64()), pa.binary(), pa.date32(), pa.list_(pa.struct([("n", pa.int64())]))]
    schema = pa.schema(list(zip(row, types, strict=True)))
    pq.write_table(pa.Table.from_pylist([row], schema=schema), tmp_path / "kinds.parquet")
    assert list(read_parquet_rows(tmp_path / "kinds.parquet")) == [row]
