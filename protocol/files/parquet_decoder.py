"""Decodes a Parquet file in a process of its own, whose memory is limited: ``python -P parquet_decoder.py FILE``.

A few bytes of a file stand for any number of values, or for any number of copies of a large one. How many is known only
when memory is allocated for them: what the file says of its sizes need not be true. So the system refuses the memory.

Rows go to standard output, as pickles of lists of them; what is wrong with the file to standard error, in one line.
Nothing of longshore is imported, so that no folder that is not Python's own has to be searched.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import pickle
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

MEMORY_BYTES = 1 << 30
"""Most memory that decoding takes."""
MAX_ROW_BYTES = 128 << 20
"""Most bytes of a row, and of the rows that are sent at once."""
MAX_ROW_VALUES = 200_000
"""Most values of a row, each list, object and null among them, and of the rows that are sent at once: about 0.2 s."""
ANY_FILE_BYTES, PER_FILE_BYTE = 1 << 30, 1000
"""Most bytes of all rows: so many of any file, and so many more for each of its bytes."""
_ROW_BYTES = 1 << 10
"""Bytes that each row counts in addition, since an empty one takes memory too."""
_BATCH_ROWS = 256


class _Field(Protocol): ...


class _DataType(Protocol):
    key_field: _Field
    """A map has this field and the next one; other types do not."""
    item_field: _Field


class _Array(Protocol):
    type: _DataType
    storage: _Array
    """An array of an extension type holds its values in this one; others do not have it."""

    def __len__(self) -> int: ...
    def cast(self, target_type: _DataType) -> _Array: ...
    def flatten(self) -> _Array | list[_Array]: ...


class _Batch(Protocol):
    nbytes: int
    num_rows: int

    def slice(self, offset: int, length: int | None = None) -> _Batch: ...
    def to_pylist(self, *, maps_as_pydicts: str) -> list[dict[str, object]]: ...
    def to_struct_array(self) -> _Array: ...


class _Metadata(Protocol):
    num_row_groups: int


class _ParquetFile(Protocol):
    metadata: _Metadata

    def iter_batches(self, batch_size: int, *, row_groups: Sequence[int], use_threads: bool) -> Iterable[_Batch]: ...


class _ParquetLibrary(Protocol):
    def ParquetFile(  # noqa: N802  pyarrow's name
        self, source: Path, *, buffer_size: int, pre_buffer: bool
    ) -> AbstractContextManager[_ParquetFile]: ...


class _TypesLibrary(Protocol):
    def is_map(self, t: _DataType) -> bool: ...
    def is_nested(self, t: _DataType) -> bool: ...


class _ArrowLibrary(Protocol):
    ArrowException: type[Exception]
    BaseExtensionType: type[_DataType]
    types: _TypesLibrary

    def list_(self, value_type: _DataType) -> _DataType: ...
    def struct(self, fields: Sequence[_Field]) -> _DataType: ...
    def system_memory_pool(self) -> object: ...
    def set_memory_pool(self, pool: object) -> None: ...


_arrow = cast("_ArrowLibrary", importlib.import_module("pyarrow"))
_parquet = cast("_ParquetLibrary", importlib.import_module("pyarrow.parquet"))


def main(path: Path) -> None:
    """Write the rows of ``path``; ends the process if they cannot be read."""
    _arrow.set_memory_pool(_arrow.system_memory_pool())  # others reserve more than they use
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES if hard < 0 else min(MEMORY_BYTES, hard), hard))
    try:
        for rows in encode_rows(path):
            sys.stdout.buffer.write(rows)
    except MemoryError:
        sys.exit(f"takes more than {MEMORY_BYTES >> 20} MiB to decode: write it with smaller rows, groups and pages")
    except (OSError, OverflowError, ValueError, RecursionError, _arrow.ArrowException) as error:
        sys.exit(" ".join(str(error).split()))


def encode_rows(path: Path) -> Iterator[bytes]:
    """Yield pickles of lists of rows, from which fields that are null are left out, also the nested ones.

    Raises MemoryError, OSError, OverflowError, ValueError, RecursionError, ArrowException.
    """
    left = ANY_FILE_BYTES + PER_FILE_BYTE * path.stat().st_size
    done = 0
    with _parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
        for group in range(file.metadata.num_row_groups):
            for batch in _read_batches(file, group):
                for rows in _encode(batch, done + 1):
                    left -= len(rows)
                    yield rows
                done += batch.num_rows
                left -= batch.num_rows * _ROW_BYTES
                if left < 0:
                    raise ValueError(f"the first {done:,} rows already hold far more than a file of its size can")


def _read_batches(file: _ParquetFile, group: int) -> Iterator[_Batch]:
    """Yield a group's rows, one at a time from where the memory is too small for more."""
    done = 0
    with contextlib.suppress(MemoryError):
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False):
            yield batch
            done += batch.num_rows
        return
    yield from itertools.islice(file.iter_batches(1, row_groups=[group], use_threads=False), done, None)


def _encode(batch: _Batch, first: int) -> Iterator[bytes]:
    """Yield the rows as pickles, as many in each as the limits allow; ``first``: number of the first one."""
    rows = _encode_at_once(batch)
    if rows is not None:
        yield rows
    elif batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _encode(batch.slice(0, half), first)
        yield from _encode(batch.slice(half), first + half)
    else:
        raise ValueError(
            f"row {first} holds more than {MAX_ROW_BYTES >> 20} MiB, or more than {MAX_ROW_VALUES:,} values: leave out "
            "such rows, or their large columns"
        )


def _encode_at_once(batch: _Batch) -> bytes | None:
    """Return the rows as one pickle; None if that is beyond a limit."""
    if batch.nbytes > MAX_ROW_BYTES or _count_values(batch.to_struct_array()) > MAX_ROW_VALUES:
        return None
    try:
        rows = pickle.dumps([_without_nulls(row) for row in batch.to_pylist(maps_as_pydicts="lossy")])
    except MemoryError:  # values that rows share are shared in the batch, too, if the file's schema says so
        return None
    return rows if len(rows) <= MAX_ROW_BYTES else None


def _count_values(array: _Array) -> int:
    if isinstance(array.type, _arrow.BaseExtensionType):
        return _count_values(array.storage)
    if not _arrow.types.is_nested(array.type):
        return len(array)
    if _arrow.types.is_map(array.type):  # the one list that cannot be flattened
        array = array.cast(_arrow.list_(_arrow.struct([array.type.key_field, array.type.item_field])))
    inner = array.flatten()
    return len(array) + sum(map(_count_values, inner if isinstance(inner, list) else [inner]))


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _without_nulls(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[object]", value)]
    return value


if __name__ == "__main__":
    main(Path(sys.argv[1]))
