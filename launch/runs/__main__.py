"""``python -m launch.runs list|compare|query|prune``: what runs there are, side by side, in SQL, and what can go.

``list`` has a line for each run of a folder; ``compare A B`` writes one page with their curves and prints a table;
``query SQL`` asks their metrics, trajectories, evaluations and events; ``prune`` removes what nobody needs any more, or
with ``--dry-run`` says what that is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from launch.config import RunConfig
from launch.run_records.run_directory import CONFIG_FILE, NoSuchRunError, list_runs
from launch.runs.comparison import (
    METRIC_COLUMNS,
    compare_metrics,
    find_config_differences,
    format_metric_rows,
    read_compared_runs,
    render_comparison_page,
)
from launch.runs.pruning import DEFAULT_PARTS, PrunablePart, prune_runs
from launch.runs.query import TABLES, run_query
from launch.runs.run_list import RUN_COLUMNS, format_bytes, format_run_row, list_run_rows
from protocol.cli.exit_codes import main_guard
from protocol.cli.numbers import integer_between, number_at_least
from protocol.cli.output import JsonOutput, display_path, error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from protocol.files.filesystem import replace_file

_DAY_S = 86_400.0


def _parser() -> CommandLineParser:
    made = CommandLineParser(prog="python -m launch.runs", description="Look after a folder of runs.")
    kinds = made.add_subparsers(dest="command", required=True, metavar="list|compare|query|prune")

    def add(name: str, text: str, example: str) -> argparse.ArgumentParser:
        kind = kinds.add_parser(name, description=text, help=text, epilog=f"Example: python -m launch.runs {example}")
        kind.add_argument("--json", action="store_true", help="print one JSON object")
        return kind

    listing = add("list", "A line for each run of a folder.", "list")
    listing.add_argument("folder", nargs="?", type=Path, default=_folder(), metavar="FOLDER", help="default: runs")
    compare = add("compare", "Runs' curves on one page, and a table.", "compare runs/a runs/b")
    compare.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, two to five")
    compare.add_argument(
        "--out", type=Path, metavar="FILE", help="the page; default: compare-A-B.html beside the first"
    )
    asked = add("query", "Ask runs in SQL.", 'query "SELECT run, max(pass_rate) FROM metrics GROUP BY run"')
    asked.add_argument("sql", metavar="SQL", help=f"over {', '.join(TABLES)}")
    asked.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run directories; default: all of runs")
    asked.add_argument("--limit", type=integer_between(1), default=1000, metavar="N", help="most rows")
    pruned = add("prune", "Remove what nobody needs, never of a run that goes on.", "prune --dry-run")
    pruned.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run directories; default: all of runs")
    pruned.add_argument(
        "--what", default=",".join(DEFAULT_PARTS), metavar="PARTS", help=f"some of {', '.join(PrunablePart)}"
    )
    pruned.add_argument(
        "--older-than", type=number_at_least(0.0), metavar="DAYS", help="only runs that began so long ago"
    )
    pruned.add_argument("--dry-run", action="store_true", help="say what would go, with sizes, and leave it")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """See the module."""
    with parse_command_line(_parser(), argv) as (given, out):
        match given.command:
            case "list":
                _list(given.folder, out)
            case "compare":
                _compare(given.runs, given.out, out)
            case "query":
                _query(given.sql, given.runs, given.limit, out)
            case _:
                _prune(given, out)


def _list(folder: Path, out: JsonOutput) -> None:
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: python -m launch.runs list FOLDER, or begin a run")
    found = list_run_rows(folder)
    out.set_result({"runs": [asdict(line) for line in found]})
    if found:
        _print(RUN_COLUMNS, [format_run_row(line) for line in found])
    else:
        error_console().print(f"{folder} holds no run")


def _compare(paths: Sequence[Path], file: Path | None, out: JsonOutput) -> None:
    compared = read_compared_runs(paths, time.time())
    names = [run.row.run for run in compared]
    path = file or paths[0].parent / f"compare-{'-'.join(names)}.html"
    try:
        replace_file(path, render_comparison_page(compared).encode())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose another place, --out FILE") from error
    out.set_result({
        "page": str(path),
        "runs": [asdict(run.row) for run in compared],
        "figures": [asdict(line) for line in compare_metrics(compared)],
        "differences": [{"key": key, "values": list(values)} for key, values in find_config_differences(compared)],
    })  # fmt: skip
    _print(METRIC_COLUMNS, format_metric_rows(compared))
    error_console().print(f"page: {display_path(path)}")


def _query(sql: str, paths: Sequence[Path], most: int, out: JsonOutput) -> None:
    answer = run_query(sql, _chosen(paths), most=most, now=time.time())
    out.set_result({"columns": list(answer.columns), "rows": [list(row) for row in answer.rows], "more": answer.more})
    _print(answer.columns, [["–" if value is None else str(value) for value in row] for row in answer.rows])
    if answer.more:
        error_console().print(f"and more than these {most} rows: --limit N shows them")


def _prune(given: argparse.Namespace, out: JsonOutput) -> None:
    parts, chosen = _parts(given.what), _chosen(given.runs)
    if PrunablePart.RUN in parts and not given.runs and given.older_than is None:
        raise UserError("--what run removes whole runs: name them, or say --older-than DAYS")
    if given.older_than is not None:
        before = time.time() - given.older_than * _DAY_S
        chosen = [path for path in chosen if (path / CONFIG_FILE).stat().st_mtime < before]
    gone, busy = prune_runs(chosen, parts, dry_run=given.dry_run)
    total = sum(each.bytes for each in gone)
    found = [{"run": each.run, "part": each.part.value, "bytes": each.bytes, "paths": len(each.paths)} for each in gone]
    out.set_result({"dry_run": given.dry_run, "removed": found, "bytes": total, "left_alone": busy})
    if gone:
        _print(("run", "part", "size"), [(each.run, each.part.value, format_bytes(each.bytes)) for each in gone])
    console = error_console()
    console.print(f"{format_bytes(total)} {'would go: leave --dry-run out' if given.dry_run else 'removed'}")
    for name in busy:
        console.print(f"left alone: {name}, which somebody drives")


def _parts(words: str) -> set[PrunablePart]:
    names = [word.strip() for word in words.split(",") if word.strip()]
    if unknown := [name for name in names if name not in set(PrunablePart)]:
        raise UserError(f"--what {unknown[0]}: the parts are {', '.join(PrunablePart)}")
    return {PrunablePart(name) for name in names}


def _chosen(paths: Sequence[Path]) -> list[Path]:
    """Raises NoSuchRunError."""
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
    error_console().print(lines)


if __name__ == "__main__":
    sys.exit(main_guard(main))
