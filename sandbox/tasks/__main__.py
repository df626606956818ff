"""Task data sets: what is in one, what is wrong with it, and the same in another format.

``validate PATH`` names every problem of every task; ``--run`` proves in real containers that each oracle scores 1,
doing nothing 0 and each foil less than 1 (in marks where the task has weights or a reward file, else only a full pass
counts).
``convert PATH --to FORMAT --out TARGET`` writes another format.  ``list PATH`` shows the tasks and their checksum.
``generate TARGET`` writes generated tasks.  PATH is a task folder, a folder of them, a file of rows, or a
``datasets.toml`` with ``--label``; without it ``--label`` names a data set of our own, such as ``longshore-bench``.

Exit code 0: every task can be used; 1: some cannot, or a proof failed; 2: nothing could be done.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from protocol.cli.exit_codes import main_guard
from protocol.cli.numbers import integer_between
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from sandbox.egress_proxy.options import add_egress_proxy_options, settings_from_options
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.tasks import dataset_catalog
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.formats.generated.generator import held_out_tasks, training_tasks
from sandbox.tasks.formats.registry import TaskFormat, find_format, format_names, load_tasks
from sandbox.tasks.formats.writing import plan_dataset_write
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import filter_dataset
from sandbox.validation import commands
from sandbox.validation.commands import CommandOutcome
from sandbox.validation.proofs import TaskProof, pool_proof_environment, prove_tasks

_SESSION_S = 7200.0
"""Longest life of a sandbox that a proof uses."""
_MOST_TASKS = 1_000_000
"""Generated at once: more is a slip, and would take the memory before anything is written."""
_NEW = (
    "new folder, or new file of rows; beside that a new folder 'tasks', where its format names images or tests by path"
)


def main(arguments: list[str] | None = None) -> int:
    """See the module."""
    with parse_command_line(_parser(), arguments) as (chosen, out):
        code, answer = _run(chosen)
        out.set_result(answer)
        return code


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="python -m sandbox.tasks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    reading = CommandLineParser(add_help=False)
    reading.add_argument(
        "path",
        type=Path,
        nargs="?",
        default=dataset_catalog.BUILT_IN_CATALOG,
        help="task folder, folder of them, file of rows, or datasets.toml (default: that of longshore's own data sets)",
    )
    reading.add_argument("--format", choices=format_names(), help="default: what the files look like")
    reading.add_argument("--root", type=Path, help="what rows' paths are relative to (default: where the rows lie)")
    reading.add_argument("--label", default="", help="which data set of a datasets.toml")
    reading.add_argument("--only", action="append", default=[], metavar="GLOB", help="names to take; !GLOB leaves out")
    every = CommandLineParser(add_help=False)
    every.add_argument("--json", action="store_true", help="one JSON object on standard output, and nothing else there")
    validate = commands.add_parser("validate", parents=[reading, every], help="name every problem of every task")
    validate.add_argument("--run", action="store_true", help="prove oracle 1, no-op 0, foils < 1 in real containers")
    validate.add_argument(
        "--at-once", type=integer_between(1), default=2 * (os.cpu_count() or 1), help="tasks tried at once"
    )
    add_egress_proxy_options(validate)
    convert = commands.add_parser("convert", parents=[reading, every], help="write another format")
    convert.add_argument("--to", choices=format_names(), required=True)
    convert.add_argument("--out", type=Path, required=True, help=_NEW)
    commands.add_parser("list", parents=[reading, every], help="show the tasks and their checksum")
    generate = commands.add_parser("generate", parents=[every], help="write generated tasks")
    generate.add_argument("out", type=Path, help=_NEW)
    generate.add_argument("--to", choices=[each.value for each in TaskFormat], default=TaskFormat.TERMINAL_BENCH.value)
    generate.add_argument(
        "--count", type=integer_between(0, _MOST_TASKS), default=18, help="training tasks (default: %(default)s)"
    )
    generate.add_argument(
        "--held-out", type=integer_between(0, _MOST_TASKS), default=0, metavar="N", help="held-out tasks of each family"
    )
    generate.add_argument("--seed", type=integer_between(0), default=0)
    return parser


def _run(chosen: argparse.Namespace) -> CommandOutcome:
    say: Callable[[str], None] = _to_stderr if chosen.json else print
    if chosen.command == "generate":
        tasks = [*training_tasks(chosen.seed, chosen.count), *held_out_tasks(chosen.seed, chosen.held_out)]
        return _written(tasks, 0, chosen, say)
    found = _load(chosen)
    if chosen.command == "convert":
        for problem in found.problems:
            say(str(problem))
        return _written(list(found.tasks), len(found.first_problems), chosen, say)
    if chosen.command == "list":
        return commands.list_tasks(found, say)
    if not chosen.run:
        return commands.validate_tasks(found, None, say)

    async def proving(on_proof: Callable[[TaskProof], None]) -> list[TaskProof]:
        run = f"prove-{uuid.uuid4().hex[:8]}"
        settings = PoolSettings(
            run,
            run,
            chosen.at_once,
            containers=settings_from_options(ContainerSettings, chosen, max_s=_SESSION_S),
        )
        async with SandboxPool(settings) as pool:
            return await prove_tasks(found.tasks, pool_proof_environment(pool), chosen.at_once, on_proof)

    return commands.validate_tasks(found, lambda on_proof: asyncio.run(proving(on_proof)), say)


def _load(chosen: argparse.Namespace) -> Dataset:
    if chosen.label or chosen.path.name == dataset_catalog.CATALOG_FILE:
        if chosen.format or chosen.root:
            raise UserError(f"{chosen.path} says format and root of a data set itself: leave out --format and --root")
        found = dataset_catalog.load_labelled_dataset(chosen.path, chosen.label)
    else:
        found = load_tasks(chosen.path, chosen.format, chosen.root)
    return filter_dataset(found, chosen.only)


def _written(
    tasks: list[Task], left_out: int, chosen: argparse.Namespace, say: Callable[[str], None]
) -> CommandOutcome:
    """Write those of ``tasks`` that the format can hold; the others are said and left out."""
    planned = plan_dataset_write(find_format(chosen.to), tasks, chosen.out)
    for problem in planned.problems:
        say(str(problem))
    count, left_out = len(tasks) - len(planned.problems), left_out + len(planned.problems)
    if count:
        planned.write()
    say(f"{count} tasks written to {chosen.out}" + (f", {left_out} left out" if left_out else ""))
    answer: dict[str, object] = {
        "tasks": count,
        "left_out": left_out,
        "format": str(chosen.to),
        "out": str(chosen.out),
    }
    return 1 if left_out else 0 if count else 2, answer


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main_guard(main))
