"""``longshore runs list|compare|query|prune``: list, compare, query and prune runs.

``list`` has a line for each run of a folder; ``compare A B`` writes one page with their curves and prints a table;
``query SQL`` asks their metrics, trajectories, evaluations and events; ``prune`` removes what nobody needs any more, or
with ``--dry-run`` says what that is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field
from rich.table import Table
from tyro.conf import Positional, subcommand

from launch.config import RunConfig
from launch.run_records.run_lookup import list_runs
from launch.runs.comparison import (
    METRIC_COLUMNS,
    compare_metrics,
    find_config_differences,
    format_metric_rows,
    read_compared_runs,
    render_run_comparison,
)
from launch.runs.pruning import DEFAULT_PARTS, PrunablePart, prune_runs
from launch.runs.query import MAX_ROW_BYTES, TABLES, run_query
from launch.runs.run_list import RUN_COLUMNS, format_run_row, list_run_rows
from protocol.cli.arguments import AtLeastOne, CommandArguments, Flag, JsonFlag, comma_separated, option
from protocol.cli.command import Command
from protocol.cli.formatting import format_bytes
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.errors import UserError
from protocol.files.filesystem import replace_file
from protocol.run_directory.layout import CONFIG_FILE, NoSuchRunError
from protocol.run_directory.plain_files import require_plain_files
from protocol.run_directory.run_arguments import RunFolder

_DAY_S = 86_400.0


class ListRunsArguments(CommandArguments):
    """List the runs of a folder."""

    folder: Positional[Annotated[Path, option("[FOLDER]")]] = RunConfig().run.dir
    """The folder of the runs."""
    as_json: JsonFlag = False


class CompareRunsArguments(CommandArguments):
    """Write a page with the runs' curves, and print a table."""

    runs: Positional[Annotated[tuple[RunFolder, ...], option("RUN ..."), Field(min_length=1)]]
    """Two to five runs: directories or ids."""
    output: Annotated[Path | None, option("FILE")] = None
    """Page to write; default: compare-A-B.html beside the first run."""
    as_json: JsonFlag = False


class QueryRunsArguments(CommandArguments):
    """Query runs with SQL.

    Example: longshore runs query "SELECT run, max(pass_rate) FROM metrics GROUP BY run"
    """

    sql: Positional[Annotated[str, option("SQL"), Field(description=f"Query over the tables {', '.join(TABLES)}.")]]
    runs: Positional[Annotated[tuple[RunFolder, ...], option("[RUN ...]")]] = ()
    """Directories or ids of runs; default: all in runs/."""
    limit: AtLeastOne = 1000
    """Maximum number of rows."""
    as_json: JsonFlag = False


class PruneRunsArguments(CommandArguments):
    """Delete files that are no longer needed, never of a run in progress."""

    runs: Positional[Annotated[tuple[RunFolder, ...], option("[RUN ...]")]] = ()
    """Directories or ids of runs; default: all in runs/."""
    what: Annotated[
        tuple[str, ...], comma_separated("PARTS"), option(), Field(description=f"Any of {', '.join(PrunablePart)}.")
    ] = tuple(each.value for each in DEFAULT_PARTS)
    older_than: Annotated[float | None, option("DAYS"), Field(ge=0)] = None
    """Only runs that started at least this many days ago."""
    dry_run: Flag = False
    """Show what would be deleted, with sizes, and exit."""
    as_json: JsonFlag = False


class RunsArguments(CommandArguments):
    """List, compare, query and prune the runs of a folder.

    Example: longshore runs list
    """

    command: (
        Annotated[ListRunsArguments, subcommand("list")]
        | Annotated[CompareRunsArguments, subcommand("compare")]
        | Annotated[QueryRunsArguments, subcommand("query")]
        | Annotated[PruneRunsArguments, subcommand("prune")]
    )


def run(given: RunsArguments, out: JsonOutput) -> None:
    """Do what the command says."""
    match given.command:
        case ListRunsArguments(folder=folder):
            _list(folder, out)
        case CompareRunsArguments(runs=runs, output=output):
            _compare(runs, output, out)
        case QueryRunsArguments(sql=sql, runs=runs, limit=limit):
            _query(sql, runs, limit, out)
        case PruneRunsArguments() as command:
            _prune(command, out)


def _list(folder: Path, out: JsonOutput) -> None:
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}: `longshore runs list FOLDER` lists another, `longshore cluster` starts a run"
        )
    found = list_run_rows(folder)
    out.set_result({"runs": [asdict(line) for line in found]})
    if found:
        _print(RUN_COLUMNS, [format_run_row(line) for line in found])
    else:
        error_console().print(f"{folder} has no run")


def _compare(paths: Sequence[Path], file: Path | None, out: JsonOutput) -> None:
    compared = read_compared_runs(paths, time.time())
    names = [run.row.run for run in compared]
    path = file or paths[0].parent / f"compare-{'-'.join(names)}.html"
    try:
        replace_file(path, render_run_comparison(compared).encode())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another place, --output FILE") from error
    out.set_result({
        "page": str(path),
        "runs": [asdict(run.row) for run in compared],
        "metrics": [asdict(line) for line in compare_metrics(compared)],
        "differences": [{"key": key, "values": list(values)} for key, values in find_config_differences(compared)],
    })  # fmt: skip
    _print(METRIC_COLUMNS, format_metric_rows(compared))
    output_console().print(f"page: {display_path(path)}")


def _query(sql: str, paths: Sequence[Path], most: int, out: JsonOutput) -> None:
    chosen = _chosen(paths)
    for path in chosen:
        require_plain_files(path)
    answer = run_query(sql, chosen, most=most, now=time.time())
    out.set_result(
        {
            "columns": list(answer.columns),
            "rows": [list(row) for row in answer.rows],
            "more": answer.more,
            "left_out": dict(answer.left_out),
        }
    )
    _print(answer.columns, [["–" if value is None else str(value) for value in row] for row in answer.rows])
    if answer.more:
        error_console().print(f"more than {most} rows match: --limit N shows more")
    for name, count in answer.left_out.items():
        error_console().print(f"{name}: rows that are damaged or above {format_bytes(MAX_ROW_BYTES)} left out: {count}")


def _prune(given: PruneRunsArguments, out: JsonOutput) -> None:
    parts, chosen = _parts(given.what), _chosen(given.runs)
    if PrunablePart.RUN in parts and not given.runs and given.older_than is None:
        raise UserError("--what run removes whole runs: name them, or pass --older-than DAYS")
    if given.older_than is not None:
        before = time.time() - given.older_than * _DAY_S
        chosen = [path for path in chosen if (path / CONFIG_FILE).stat().st_mtime < before]
    gone, busy = prune_runs(chosen, parts, dry_run=given.dry_run)
    total = sum(each.bytes for each in gone)
    found = [{"run": each.run, "part": each.part.value, "bytes": each.bytes, "paths": len(each.paths)} for each in gone]
    out.set_result({"dry_run": given.dry_run, "removed": found, "bytes": total, "busy": busy})
    if gone:
        _print(("run", "part", "size"), [(each.run, each.part.value, format_bytes(each.bytes)) for each in gone])
    console = output_console()
    console.print(f"{format_bytes(total)} {'would be freed: run without --dry-run' if given.dry_run else 'freed'}")
    for name in busy:
        console.print(f"skipped {name}: the run is in progress")


def _parts(names: Sequence[str]) -> set[PrunablePart]:
    if unknown := [name for name in names if name not in set(PrunablePart)]:
        raise UserError(f"--what {unknown[0]}: the parts are {', '.join(PrunablePart)}")
    return {PrunablePart(name) for name in names}


def _chosen(paths: Sequence[Path]) -> list[Path]:
    """Return the chosen runs.  Raises NoSuchRunError."""
    for path in paths:
        if not (path / CONFIG_FILE).is_file():
            raise NoSuchRunError(path)
    return list(paths) or list_runs(_folder())


def _folder() -> Path:
    return RunConfig().run.dir


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = Table(box=None, pad_edge=False)
    for place, name in enumerate(head):
        lines.add_column(name, justify="left" if place == 0 else "right", no_wrap=True, overflow="fold")
    for row in rows:
        lines.add_row(*row)
    output_console().print(lines)


COMMAND = Command("runs", RunsArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
