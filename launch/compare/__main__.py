"""``python -m launch.compare A B …``: hold evaluations of the same tasks against the first, task by task.

Each is a folder that ``launch.evaluate`` wrote, or a run's own evaluation (``runs/ID/before``, ``runs/ID/step-000008``,
``runs/ID/after``).  It prints the paired difference of pass@k with its interval and the tasks that changed, and writes
a page with both terminals of each side by side.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.evaluation.comparison.compared_evaluation import open_evaluations
from launch.evaluation.comparison.comparison_page import render_comparison_page
from launch.evaluation.comparison.comparison_tables import comparison_as_json, comparison_lines
from launch.evaluation.comparison.evaluation_comparison import EvaluationComparison, compare_evaluations
from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.numbers import integer_between
from protocol.cli.output import display_path, error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from protocol.files.filesystem import replace_file

_SHORT = re.compile(r"[^A-Za-z0-9._-]+")


def main(argv: Sequence[str] | None = None) -> int:
    with parse_command_line(_parser(), argv) as (given, out):
        if not given.others:
            raise UserError(f"{given.first} alone has nothing to be compared with: name another evaluation after it")
        comparison = compare_evaluations(
            open_evaluations([given.first, *given.others]), anyway=given.anyway, seed=given.seed
        )
        file = _written(given.output or _usual(comparison), render_comparison_page(comparison, given.terminals))
        out.set_result({**comparison_as_json(comparison), "page": str(file)})
        console = error_console()
        for line in comparison_lines(comparison):
            console.print(line)
        console.print(f"page: {display_path(file)}")
    return EXIT_OK


def _parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.compare",
        description="Hold evaluations of the same tasks against the first: paired differences, and what changed.",
        epilog="Example: python -m launch.compare evaluations/demo-model_v1-tasks evaluations/demo-model_v2-tasks",
    )
    add = made.add_argument
    add("first", metavar="FIRST", help="an evaluation's folder, or runs/ID/before")
    add("others", nargs="*", metavar="OTHER", help="others of the same tasks, each compared with the first")
    add("--anyway", action="store_true", help="compare tasks of the same name where data sets or sampling differ")
    add("--seed", type=integer_between(0), default=0, metavar="N", help="of the intervals (default: 0)")
    add(
        "--terminals",
        type=integer_between(0),
        default=20,
        metavar="N",
        help="changed tasks shown (default: %(default)s)",
    )
    add("--output", type=Path, metavar="FILE.html", help="default: beside the first, FIRST-and-OTHER.html")
    add("--json", action="store_true", help="print the comparison as one JSON object on standard output")
    return made


def _usual(comparison: EvaluationComparison) -> Path:
    names = "-and-".join(_SHORT.sub("_", side.name)[-80:].strip("_") for side in comparison.evaluations[:2])
    more = f"-and-{len(comparison.evaluations) - 2}-more" if len(comparison.evaluations) > 2 else ""
    return comparison.first.path.parent / f"{names}{more}.html"


def _written(file: Path, text: str) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; name another place, --output FILE.html") from error
    return file


if __name__ == "__main__":
    sys.exit(main_guard(main))
