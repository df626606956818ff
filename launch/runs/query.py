"""Answers SQL queries about a folder of runs: its files as tables of a database in memory.

Nothing can be written, and no other file read: the tables that the query names are loaded first, then the database is
closed to the file system.

- ``runs``: a line each, as ``longshore runs list`` has it
- ``metrics``: the steps that no rollback discarded, with every figure of ``metrics.jsonl``
- ``trajectories``: the export's index (trajectory, group, sample, task, status, reward, length in bytes)
- ``evaluations``: an attempt each, of those before, after and beside training
- ``events``: time, kind, writer, and the whole line as JSON
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from launch.evaluation.held_out.evaluation_store import list_run_evaluations
from launch.evaluation.results.evaluation_folder import read_attempt_records, read_spec
from launch.run_records.metrics_log import read_metrics
from launch.runs.run_list import read_run_row
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.files.duckdb_session import DuckDbSession
from protocol.run_directory.run_tail import read_events
from protocol.run_directory.trajectory_export import read_export_index

TableRow = Mapping[str, object]
MAX_ROW_BYTES = 16 << 20
"""Most bytes of a row, as DuckDB's ``maximum_object_size`` is by default."""
_EXAMPLE = ': write one query in SQL, as "select run, step, reward_mean from metrics"'
_NO_TABLE = re.compile(r"Table with name (\S+) does not exist")


@dataclass(frozen=True, slots=True)
class QueryResult:
    columns: Sequence[str]
    rows: Sequence[Sequence[JsonValue]]
    more: bool
    """Whether there are more rows than were asked for."""
    left_out: Mapping[str, int]
    """Table → number of its rows that are damaged or too long to be loaded."""


def run_query(sql: str, run_dirs: Sequence[Path], *, most: int, now: float) -> QueryResult:
    """Run a query.  Raises UserError for SQL that DuckDB refuses."""
    empty, left_out = list[str](), dict[str, int]()
    with DuckDbSession() as duck, tempfile.TemporaryDirectory(prefix="ls-query-") as folder:
        if (statements := duck.count_statements(sql)) != 1:
            raise UserError(
                f"there are {statements} queries{_EXAMPLE}" if statements else f"the query is empty{_EXAMPLE}"
            )
        for name in _named(sql):
            found = [_encode(row) for path in run_dirs for row in TABLES[name](path, now)]
            lines = [line for line in found if line]
            _load(duck, name, Path(folder), lines)
            empty += [] if lines else [name]
            left_out |= {name: len(found) - len(lines)} if len(lines) < len(found) else {}
        for shut in ("SET enable_external_access = false", "SET lock_configuration = true"):
            duck.execute(shut)
        try:
            duck.execute(sql)
        except UserError as error:
            if (lacking := _NO_TABLE.search(str(error))) is not None:
                near = did_you_mean(lacking[1], TABLES)
                raise UserError(f"there is no table '{lacking[1]}', but {', '.join(TABLES)}{near}") from error
            raise UserError(_without_rows(empty) + str(error)) from error
        columns, rows = duck.fetch_rows(most + 1)
    if not columns:
        raise UserError(f"this asks for no rows{_EXAMPLE}")
    shown = [[to_json_value(value) for value in row] for row in rows[:most]]
    return QueryResult(columns, shown, len(rows) > most, left_out)


def _named(sql: str) -> list[str]:
    """Return the tables that the query may use; the others are not read."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    asks_all = bool(words & {"show", "describe", "summarize", "information_schema"})
    return [name for name in TABLES if asks_all or name in words]


def _without_rows(names: Sequence[str]) -> str:
    """Return a hint on tables without rows, which have no columns."""
    return f"there is no row of {', '.join(names)} yet in what was asked, so no column either: " if names else ""


def _encode(row: TableRow) -> bytes:
    """Return a row as a line for DuckDB; empty for one that it would refuse, and with it the whole table."""
    if not isinstance(row.get("t", 0.0), int | float | None):
        return b""
    try:
        line = orjson.dumps(row) + b"\n"
    except orjson.JSONEncodeError:  # nested more deeply than can be written
        return b""
    return line if len(line) <= MAX_ROW_BYTES else b""


def _load(duck: DuckDbSession, name: str, folder: Path, lines: Sequence[bytes]) -> None:
    """Load a table; one without rows gets its first column."""
    if not lines:
        duck.execute(f"CREATE TABLE {name} (run VARCHAR)")
        return
    file = folder / f"{name}.jsonl"
    file.write_bytes(b"".join(lines))
    events = ", columns = {run: 'VARCHAR', t: 'DOUBLE', kind: 'VARCHAR', writer: 'VARCHAR', line: 'JSON'}"
    columns = events if name == "events" else ", sample_size = -1"
    duck.execute(
        f"CREATE TABLE {name} AS SELECT * FROM read_json(?, format = 'newline_delimited'{columns})",  # noqa: S608  names of ours
        str(file),
    )


def to_json_value(value: object) -> JsonValue:
    """Return a DuckDB value as JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case decimal.Decimal():
            return float(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case list() | tuple():
            return [to_json_value(each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  of DuckDB
        case dict():
            return {str(key): to_json_value(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  of DuckDB
        case _:
            return str(value)


def _runs(run_dir: Path, now: float) -> Iterator[TableRow]:
    yield asdict(read_run_row(run_dir, now))


def _metrics(run_dir: Path, now: float) -> Iterator[TableRow]:
    del now
    for step in read_metrics(run_dir):
        yield {"run": run_dir.name, **step}


def _trajectories(run_dir: Path, now: float) -> Iterator[TableRow]:
    del now
    for entry in read_export_index(run_dir):
        yield {"run": run_dir.name, **asdict(entry)}


def _evaluations(run_dir: Path, now: float) -> Iterator[TableRow]:
    del now
    for name, folder in list_run_evaluations(run_dir).items():
        step = read_spec(folder).step
        for attempt in read_attempt_records(folder).values():
            verdict = attempt.verdict
            yield {
                "run": run_dir.name,
                "name": name,
                "step": step,
                "task": attempt.task,
                "number": attempt.number,
                "family": attempt.family,
                "greedy": attempt.greedy,
                "passed": attempt.passed,
                "reward": verdict.reward if verdict else None,
                "status": verdict.status.value if verdict else None,
                "seconds": attempt.seconds,
                "sampled_tokens": attempt.usage.completion_tokens,
                "versions": attempt.versions,
            }


def _events(run_dir: Path, now: float) -> Iterator[TableRow]:
    del now
    for event in read_events(run_dir):
        yield {
            "run": run_dir.name,
            "t": event.get("t"),
            "kind": event.get("kind"),
            "writer": event.get("writer"),
            "line": event,
        }


TABLES: Mapping[str, Callable[[Path, float], Iterator[TableRow]]] = {
    "runs": _runs,
    "metrics": _metrics,
    "trajectories": _trajectories,
    "evaluations": _evaluations,
    "events": _events,
}
"""Table → a function that yields its rows of one run."""
