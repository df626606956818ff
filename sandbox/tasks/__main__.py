"""``longshore tasks validate|report|convert|list|generate``: check, summarise, list, convert and generate data sets.

``validate --run`` proves in real containers that each oracle scores 1, doing nothing scores 0 and each foil scores less
than 1 (partial scores count where the task has weights or a reward file, else only a full pass).

Exit code 0: every task can be used; 1: some cannot, or a proof failed; 2: the command could not run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional, subcommand

from protocol.cli.arguments import CommandArguments, Count, Flag, JsonFlag, TaskGlobs, one_of, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import SERVICE_LIFETIME_S, ContainerSettings
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.dataset_catalog import CATALOG_FILE, load_dataset
from sandbox.tasks.formats.generated.generator import held_out_tasks, training_tasks
from sandbox.tasks.formats.registry import TaskFormat, find_format, format_names
from sandbox.tasks.formats.writing import plan_dataset_write
from sandbox.tasks.network_policy import DEFAULT_NETWORK_POLICY, NetworkPolicy
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import filter_dataset
from sandbox.validation import commands
from sandbox.validation.commands import CommandOutcome
from sandbox.validation.proofs import TaskProof, pool_proof_environment, prove_tasks

_MOST_TASKS = 1_000_000
"""Maximum number of generated tasks: more would fill the memory before anything is written."""
_NEW = "New folder or file of rows; rows that refer to images or tests by path also get a folder 'tasks' beside them."
_FORMATS = tuple(format_names())


class ReadTasksArguments(CommandArguments):
    """Arguments of every command that reads a data set."""

    tasks: Positional[Annotated[str, option("LABEL|PATH")]]
    """Label of a data set (longshore-bench, or one of datasets.toml), a task folder or folder of them, or a file of
    rows."""
    datasets: Annotated[Path, option("FILE")] = Path(CATALOG_FILE)
    """File that defines data set labels."""
    format: Annotated[
        str | None,
        one_of(_FORMATS),
        option("FORMAT"),
        Field(description=f"One of {', '.join(_FORMATS)}; default: detected from the files."),
    ] = None
    root: Annotated[Path | None, option("FOLDER")] = None
    """Base folder of paths in rows; default: the rows' own folder."""
    only: TaskGlobs = ()
    as_json: JsonFlag = False


class ListTasksArguments(ReadTasksArguments):
    """List the tasks, with a checksum."""


class ReportTasksArguments(ReadTasksArguments):
    """Summarise a data set: usable tasks, reasons why others are not, and what the usable ones want."""


class ValidateTasksArguments(ReadTasksArguments, EgressProxyOptions):
    """Report every problem of every task."""

    strict: Flag = False
    """Fail on remarks too: keys that are not followed because they cannot matter."""
    run: Flag = False
    """Check in real containers that each solution scores 1, doing nothing 0 and each foil less than 1."""
    network: NetworkPolicy = DEFAULT_NETWORK_POLICY
    """Network of the agent and the tests; `task`: what each task asks for."""
    concurrency: Annotated[int, option("N", show_default=False), Field(ge=1)] = 2 * (os.cpu_count() or 1)
    """Concurrent tasks with --run; default: two per CPU."""


class ConvertTasksArguments(ReadTasksArguments):
    """Write a data set in another format."""

    to: Annotated[str, one_of(_FORMATS), option("FORMAT"), Field(description=f"One of {', '.join(_FORMATS)}.")]
    output: Annotated[Path, option("PATH"), Field(description=_NEW)]


class GenerateTasksArguments(CommandArguments):
    """Write generated tasks."""

    output: Positional[Annotated[Path, option("PATH"), Field(description=_NEW)]]
    to: Annotated[str, one_of(TaskFormat), option("FORMAT"), Field(description=f"One of {', '.join(TaskFormat)}.")] = (
        TaskFormat.TERMINAL_BENCH.value
    )
    count: Annotated[int, option("N"), Field(ge=0, le=_MOST_TASKS)] = 18
    """Number of training tasks."""
    held_out: Annotated[int, option("N"), Field(ge=0, le=_MOST_TASKS)] = 0
    """Held-out tasks per family."""
    seed: Count = 0
    """Seed of the tasks."""
    as_json: JsonFlag = False


class TasksArguments(CommandArguments):
    """Check, summarise, list, convert and generate data sets of tasks.

    Example: longshore tasks validate ./tasks --run
    """

    command: (
        Annotated[ValidateTasksArguments, subcommand("validate")]
        | Annotated[ReportTasksArguments, subcommand("report")]
        | Annotated[ConvertTasksArguments, subcommand("convert")]
        | Annotated[ListTasksArguments, subcommand("list")]
        | Annotated[GenerateTasksArguments, subcommand("generate")]
    )


def run(given: TasksArguments, out: JsonOutput) -> int:
    """Run the command and return 0 if every task can be used."""
    code, answer = _run(given.command)
    out.set_result(answer)
    return code


def _run(chosen: ReadTasksArguments | GenerateTasksArguments) -> CommandOutcome:
    say = output_console().print
    if isinstance(chosen, GenerateTasksArguments):
        tasks = [*training_tasks(chosen.seed, chosen.count), *held_out_tasks(chosen.seed, chosen.held_out)]
        return _written(tasks, 0, chosen, say)
    found = _load(chosen)
    if isinstance(chosen, ConvertTasksArguments):
        for problem in found.problems:
            say(str(problem))
        return _written(list(found.tasks), len(found.first_problems), chosen, say)
    if isinstance(chosen, ReportTasksArguments):
        return commands.report_dataset(found, say)
    if not isinstance(chosen, ValidateTasksArguments):
        return commands.list_tasks(found, say)
    found = found.with_network(chosen.network, "--network")
    if not chosen.run:
        return commands.validate_tasks(found, None, say, strict=chosen.strict)

    async def prove(on_proof: Callable[[TaskProof], None]) -> list[TaskProof]:
        name = f"prove-{uuid.uuid4().hex[:8]}"
        containers = chosen.proxy_settings(ContainerSettings, max_lifetime_s=SERVICE_LIFETIME_S)
        settings = PoolSettings(name, name, chosen.concurrency, containers=containers)
        async with SandboxPool(settings) as pool:
            return await prove_tasks(found.tasks, pool_proof_environment(pool), chosen.concurrency, on_proof)

    return commands.validate_tasks(found, lambda on_proof: asyncio.run(prove(on_proof)), say, strict=chosen.strict)


def _load(chosen: ReadTasksArguments) -> Dataset:
    """Load the data set's chosen tasks.  Raises UserError if there is none, usable or not."""
    found = load_dataset(chosen.tasks, chosen.datasets, chosen.format, chosen.root)
    if not found.tasks and not found.problems:
        raise UserError(
            f"{chosen.tasks} has no task: name a folder of task folders, or a .jsonl file "
            "(longshore tasks validate --help lists the formats)"
        )
    kept = filter_dataset(found, list(chosen.only))
    if not kept.tasks and not kept.problems:
        raise UserError(
            f"--only {' '.join(chosen.only)}: {chosen.tasks} has no such task (longshore tasks list {chosen.tasks})"
        )
    return kept


def _written(
    tasks: list[Task], left_out: int, chosen: ConvertTasksArguments | GenerateTasksArguments, say: Callable[[str], None]
) -> CommandOutcome:
    """Write those of ``tasks`` that the format can hold; the others are reported and left out."""
    planned = plan_dataset_write(find_format(chosen.to), tasks, chosen.output)
    for problem in planned.problems:
        say(str(problem))
    count, left_out = len(tasks) - len(planned.problems), left_out + len(planned.problems)
    if count:
        planned.write()
    say(
        f"{'1 task' if count == 1 else f'{count} tasks'} written to {chosen.output}"
        + (f", {left_out} left out" if left_out else "")
    )
    answer: dict[str, object] = {
        "tasks": count,
        "left_out": left_out,
        "format": str(chosen.to),
        "output": str(chosen.output),
    }
    return 1 if left_out else 0 if count else 2, answer


COMMAND = Command("tasks", TasksArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
