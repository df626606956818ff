"""Writes Parquet files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import duckdb


def write_parquet(file: Path, rows: Sequence[object]) -> Path:
    """Write ``rows``, JSON objects; a key that only some have is null in the others."""
    lines = file.with_suffix(".written.jsonl")
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with duckdb.connect(":memory:") as connection:
        connection.from_query("SELECT * FROM read_json(?)", params=[str(lines)]).write_parquet(str(file))
    lines.unlink()
    return file
