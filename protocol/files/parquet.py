"""Reads the rows of a Parquet file, the form of most published data sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from protocol.errors import UserError
from protocol.files.duckdb_session import DuckDbSession

_ROWS_AT_ONCE = 256


def read_parquet_rows(path: Path) -> Iterator[dict[str, object]]:
    """Yield each row as JSON would have it: fields that are null are left out, also the nested ones.

    Raises ValueError, in one line, if ``path`` cannot be read.
    """
    try:
        with DuckDbSession() as session:
            session.execute("SELECT * FROM read_parquet(?)", str(path))
            while (found := session.fetch_rows(_ROWS_AT_ONCE))[1]:
                columns, rows = found
                for row in rows:
                    yield cast("dict[str, object]", _without_nulls(dict(zip(columns, row, strict=True))))
    except UserError as error:
        raise ValueError(str(error)) from error


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _without_nulls(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[object]", value)]
    return value
