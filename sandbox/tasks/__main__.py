"""``python -m sandbox.tasks validate FOLDER`` names every task folder that cannot be used, and why;
``python -m sandbox.tasks write FOLDER`` writes generated tasks as Terminal-Bench directories."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from protocol.errors import UserError
from sandbox.tasks.generated import held_out_tasks, training_tasks
from sandbox.tasks.terminal_bench import load_dataset, write_task


def main(arguments: list[str] | None = None) -> int:
    """0: every task can be used; 1: some cannot; 2: nothing could be done."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.tasks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    validate = commands.add_parser("validate", help="name the task folders that cannot be used")
    validate.add_argument("folder", type=Path, help="folder of Terminal-Bench task folders")
    write = commands.add_parser("write", help="write generated tasks as Terminal-Bench directories")
    write.add_argument("folder", type=Path, help="where the task folders go")
    write.add_argument("--count", type=int, default=18, help="training tasks to write (default: %(default)s)")
    write.add_argument("--held-out", type=int, default=0, metavar="N", help="held-out tasks of each family")
    write.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    try:
        return _validate(chosen.folder) if chosen.command == "validate" else _write(chosen)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _validate(folder: Path) -> int:
    found = load_dataset(folder)
    for problem in found.problems:
        print(problem)
    print(f"{len(found.tasks)} tasks can be used, {len(found.problems)} cannot")
    return 1 if found.problems else 0 if found.tasks else 2


def _write(chosen: argparse.Namespace) -> int:
    tasks = [*training_tasks(chosen.seed, chosen.count), *held_out_tasks(chosen.seed, chosen.held_out)]
    for task in tasks:
        write_task(task, chosen.folder)
    print(f"{len(tasks)} tasks written to {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
