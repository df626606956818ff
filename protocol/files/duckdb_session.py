"""The typed interface to DuckDB, which is only imported for a query."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, cast

from protocol.errors import UserError


class DuckDbConnection(Protocol):
    description: Sequence[Sequence[object]] | None
    """The (name, type, …) of each column."""

    def execute(self, query: str, parameters: object = ...) -> DuckDbConnection: ...
    def fetchmany(self, size: int) -> list[tuple[object, ...]]: ...
    def extract_statements(self, query: str) -> list[object]: ...
    def close(self) -> None: ...


class _DuckDB(Protocol):
    Error: type[Exception]

    def connect(self, database: str) -> DuckDbConnection: ...


class DuckDbSession:
    """A database in memory for one query."""

    def __enter__(self) -> Self:
        try:
            self._duckdb = cast("_DuckDB", importlib.import_module("duckdb"))
        except ImportError as error:
            raise UserError("DuckDB is not installed: make setup installs it (or pip install duckdb)") from error
        self._connection = self._duckdb.connect(":memory:")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def count_statements(self, query: str) -> int:
        """Return the number of statements in SQL.  Raises UserError for what is no SQL."""
        try:
            return len(self._connection.extract_statements(query))
        except self._duckdb.Error as error:
            raise UserError(_one_line(error)) from error

    def execute(self, query: str, *parameters: object) -> None:
        """Execute SQL.  Raises UserError with DuckDB's message on one line, without the piece of the query."""
        try:
            self._connection.execute(query, list(parameters))
        except self._duckdb.Error as error:
            raise UserError(_one_line(error)) from error

    def fetch_rows(self, most: int) -> tuple[list[str], list[tuple[object, ...]]]:
        """Return the columns and rows of the last query; none if it had no result."""
        columns = [str(column[0]) for column in self._connection.description or ()]
        try:
            return columns, self._connection.fetchmany(most) if columns else []
        except self._duckdb.Error as error:
            raise UserError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).partition("\nLINE ")[0].split())
