"""``longshore compare A B …``: compare evaluations of the same tasks, task by task.

Each is a folder that ``longshore evaluate`` wrote, or a run's own evaluation (``runs/ID/before``,
``runs/ID/step-000008``, ``runs/ID/after``).  The command prints the paired difference of pass@k with its interval and
the tasks that changed, and writes a page with their terminals side by side.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from launch.evaluation.comparison.compared_evaluation import open_evaluations
from launch.evaluation.comparison.comparison_page import render_evaluation_comparison
from launch.evaluation.comparison.comparison_tables import comparison_as_json, comparison_lines
from launch.evaluation.comparison.evaluation_comparison import EvaluationComparison, compare_evaluations
from protocol.cli.arguments import CommandArguments, Count, Flag, JsonFlag, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, display_path, output_console
from protocol.errors import UserError
from protocol.files.filesystem import replace_file
from protocol.run_directory.run_arguments import RunFolder

_SHORT = re.compile(r"[^A-Za-z0-9._-]+")


class CompareArguments(CommandArguments):
    """Compare evaluations of the same tasks with the first one: paired differences, and tasks that changed.

    Example: longshore compare evaluations/demo-model_v1-tasks evaluations/demo-model_v2-tasks
    """

    first: Positional[Annotated[RunFolder, option("FIRST")]]
    """Folder of an evaluation, or RUN/before, RUN/step-000008, RUN/after."""
    others: Positional[Annotated[tuple[RunFolder, ...], option("[OTHER ...]")]] = ()
    """Other evaluations of the same tasks; each is compared with the first."""
    anyway: Flag = False
    """Compare tasks of the same name even if data sets or sampling differ."""
    seed: Count = 0
    """Seed of the confidence intervals."""
    terminals: Count = 20
    """Number of changed tasks whose terminals the page shows."""
    output: Annotated[Path | None, option("FILE.html")] = None
    """Path of the page; default: beside the first, FIRST-and-OTHER.html."""
    as_json: JsonFlag = False


def run(given: CompareArguments, out: JsonOutput) -> None:
    """Print the comparison and write its page."""
    if not given.others:
        raise UserError(f"{given.first} alone has nothing to compare with: name another evaluation after it")
    names = [str(path) for path in (given.first, *given.others)]
    comparison = compare_evaluations(open_evaluations(names), anyway=given.anyway, seed=given.seed)
    file = _write_page(
        given.output or _default_page(comparison), render_evaluation_comparison(comparison, given.terminals)
    )
    out.set_result({**comparison_as_json(comparison), "page": str(file)})
    console = output_console()
    for line in comparison_lines(comparison):
        console.print(line)
    console.print(f"page: {display_path(file)}")


def _default_page(comparison: EvaluationComparison) -> Path:
    names = "-and-".join(_SHORT.sub("_", side.name)[-80:].strip("_") for side in comparison.evaluations[:2])
    more = f"-and-{len(comparison.evaluations) - 2}-more" if len(comparison.evaluations) > 2 else ""
    return comparison.first.path.parent / f"{names}{more}.html"


def _write_page(file: Path, text: str) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; choose another path, --output FILE.html") from error
    return file


COMMAND = Command("compare", CompareArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
