"""Reads the rows of a Parquet file, the form of most published data sets, in memory that its size does not set."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

_BATCH_BYTES = 64 << 20
_BATCH_ROWS = 256
MAX_BATCH_BYTES = 128 << 20
"""Most decoded bytes of the rows that are held at once, or of a single one."""


class _Batch(Protocol):
    nbytes: int
    num_rows: int

    def slice(self, offset: int, length: int) -> _Batch: ...
    def to_pylist(self, *, maps_as_pydicts: str) -> list[dict[str, object]]: ...


class _RowGroup(Protocol):
    total_byte_size: int


class _Metadata(Protocol):
    num_row_groups: int

    def row_group(self, i: int) -> _RowGroup: ...


class _ParquetFile(Protocol):
    metadata: _Metadata

    def iter_batches(self, batch_size: int, *, row_groups: Sequence[int], use_threads: bool) -> Iterable[_Batch]: ...


class _ParquetLibrary(Protocol):
    def ParquetFile(  # noqa: N802  pyarrow's name
        self, source: Path, *, buffer_size: int, pre_buffer: bool
    ) -> AbstractContextManager[_ParquetFile]: ...


class _ArrowLibrary(Protocol):
    ArrowException: type[Exception]


def read_parquet_rows(path: Path) -> Iterator[dict[str, object]]:
    """Yield each row as JSON would have it: fields that are null are left out, also the nested ones.

    Raises ValueError, in one line, if ``path`` cannot be read or a row is larger than :data:`MAX_BATCH_BYTES`.
    """
    arrow = cast("_ArrowLibrary", importlib.import_module("pyarrow"))
    parquet = cast("_ParquetLibrary", importlib.import_module("pyarrow.parquet"))
    try:
        with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for row in _read_rows(file):
                yield cast("dict[str, object]", _without_nulls(row))
    except (OSError, OverflowError, ValueError, arrow.ArrowException) as error:
        raise ValueError(" ".join(str(error).split())) from error


def rows_at_once(row_group_bytes: int) -> int:
    """Return how many rows of a row group may be decoded at once.

    A column's value that many rows share is stored once and decoded for each of them, and may be as large as the whole
    group.
    """
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, row_group_bytes)))


def _read_rows(file: _ParquetFile) -> Iterator[dict[str, object]]:
    done = 0
    for group in range(file.metadata.num_row_groups):
        rows = rows_at_once(file.metadata.row_group(group).total_byte_size)
        for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
            if batch.nbytes > MAX_BATCH_BYTES:
                raise ValueError(
                    f"rows {done + 1} to {done + batch.num_rows} hold {batch.nbytes >> 20} MiB, and "
                    f"{MAX_BATCH_BYTES >> 20} MiB are the most: leave out such rows, or their large columns"
                )
            for index in range(batch.num_rows):
                yield from batch.slice(index, 1).to_pylist(maps_as_pydicts="lossy")
            done += batch.num_rows


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _without_nulls(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[object]", value)]
    return value
