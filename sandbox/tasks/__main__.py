"""``longshore tasks validate|attack|report|convert|list|generate``: check, attack, convert and generate data sets.

``validate --run`` proves in real containers that each oracle scores 1, doing nothing scores 0 and each foil scores less
than 1 (partial scores count where the task has weights or a reward file, else only a full pass).

Exit code 0: every task can be used; 1: some cannot, or a proof failed; 2: the command could not run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field
from tyro.conf import Positional, UseAppendAction, subcommand

from protocol.cli.arguments import CommandArguments, Count, Flag, JsonFlag, TaskPatterns, one_of, option, repeatable
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput, error_console, output_console
from protocol.errors import UserError
from sandbox.browser.installation import BROWSER_PROGRAMS, require_browser
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.egress_proxy.rules import find_refused_hosts
from sandbox.grading.judges import find_unreachable_judges
from sandbox.host_record import current_host
from sandbox.images.registry_options import RegistryOptions
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import SERVICE_LIFETIME_S, ContainerSettings
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.dataset_catalog import CATALOG_FILE, load_dataset
from sandbox.tasks.formats.generated.generator import held_out_tasks, training_tasks
from sandbox.tasks.formats.liveweb.generator import generate_web_tasks
from sandbox.tasks.formats.registry import TaskFormat, find_format, format_names
from sandbox.tasks.formats.writing import plan_dataset_write
from sandbox.tasks.network_policy import DEFAULT_NETWORK_POLICY, NetworkPolicy
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_selection import filter_dataset
from sandbox.validation import commands
from sandbox.validation.attacks.progress import report_attack_progress
from sandbox.validation.attacks.report import report_attacks
from sandbox.validation.attacks.suite import ATTACKS
from sandbox.validation.attacks.trial import plan_trials, try_attacks
from sandbox.validation.commands import CommandOutcome
from sandbox.validation.proofs import ProofEnvironment, TaskProof, pool_proof_environment, prove_tasks
from sandbox.validation.web_oracle import has_web_oracle

Result = TypeVar("Result")
_MOST_TASKS = 1_000_000
"""Maximum number of generated tasks: more would fill the memory before anything is written."""
_NEW = "New folder or file of rows; rows that refer to images or tests by path also get a folder 'tasks' beside them."
_FORMATS = tuple(format_names())


class ReadTasksArguments(CommandArguments):
    """Arguments of every command that reads a data set."""

    tasks: Positional[Annotated[str, option("LABEL|PATH")]]
    """Label of a data set (longshore-bench, longshore-web, longshore-swe, or one of datasets.toml), a task folder or
    folder of them, a file of rows, or hf:ORG/NAME for a data set of the Hugging Face hub."""
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
    only: TaskPatterns = ()
    as_json: JsonFlag = False


class ListTasksArguments(ReadTasksArguments):
    """List the tasks, with a checksum."""


class ReportTasksArguments(ReadTasksArguments):
    """Summarise a data set: usable tasks, reasons why others are not, and what the usable ones want."""


class TryTasksArguments(ReadTasksArguments, EgressProxyOptions, RegistryOptions):
    """Arguments of the commands that try tasks in real containers."""

    network: NetworkPolicy = DEFAULT_NETWORK_POLICY
    """Network of the agent and the tests; `task`: what each task asks for."""
    concurrency: Annotated[int, option("N", show_default=False), Field(ge=1)] = 2 * (os.cpu_count() or 1)
    """Concurrent sandboxes; default: two per CPU."""


class ValidateTasksArguments(TryTasksArguments):
    """Report every problem of every task."""

    strict: Flag = False
    """Fail on remarks too: what a task says and does not get, such as keys that cannot matter."""
    run: Flag = False
    """Check in real containers that each solution scores 1, doing nothing 0 and each foil less than 1."""


class AttackTasksArguments(TryTasksArguments):
    """Try what an agent could run instead of solving the tasks, and report what each attack earns."""

    attack: UseAppendAction[
        Annotated[tuple[str, ...], repeatable("GLOB"), Field(description="Only attacks whose names match.")]
    ] = ()
    level: GradingLevel | None = None
    """Grading level; default: each task's own."""


class ConvertTasksArguments(ReadTasksArguments):
    """Write a data set in another format."""

    to: Annotated[str, one_of(_FORMATS), option("FORMAT"), Field(description=f"One of {', '.join(_FORMATS)}.")]
    output: Annotated[Path, option("PATH"), Field(description=_NEW)]


_GENERATED = f"One of {', '.join(TaskFormat)}; liveweb makes tasks of the web about sites of ours."


class GenerateTasksArguments(CommandArguments):
    """Write generated tasks."""

    output: Positional[Annotated[Path, option("PATH"), Field(description=_NEW)]]
    to: Annotated[str, one_of(TaskFormat), option("FORMAT"), Field(description=_GENERATED)] = (
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
    """Check, attack, summarise, list, convert and generate data sets of tasks.

    Example: longshore tasks validate ./tasks --run
    """

    command: (
        Annotated[ValidateTasksArguments, subcommand("validate")]
        | Annotated[AttackTasksArguments, subcommand("attack")]
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
    console = output_console()
    say = console.print
    if isinstance(chosen, GenerateTasksArguments):
        return _written(_generate(chosen), 0, chosen, say)
    found = _load(chosen)
    if isinstance(chosen, ConvertTasksArguments):
        for problem in found.problems:
            say(str(problem))
        return _written(list(found.tasks), len(found.first_problems), chosen, say)
    if isinstance(chosen, ReportTasksArguments):
        return commands.report_dataset(found, say, console.width if console.is_terminal else sys.maxsize)
    if not isinstance(chosen, ValidateTasksArguments | AttackTasksArguments):
        return commands.list_tasks(found, say)
    proxy = chosen.proxy_settings(ContainerSettings)
    granted = found.with_network(chosen.network, "--network").without(find_unreachable_judges)
    found = granted.without(lambda task: find_refused_hosts(task.network, proxy.always_allowed_hosts))
    if isinstance(chosen, AttackTasksArguments):
        return _attack(found, chosen, say)
    if not chosen.run:
        return commands.validate_tasks(found, None, say, strict=chosen.strict)

    def prove(on_proof: Callable[[TaskProof], None]) -> list[TaskProof]:
        return _in_sandboxes(
            chosen, found.tasks, lambda environment, at_once: prove_tasks(found.tasks, environment, at_once, on_proof)
        )

    return commands.validate_tasks(found, prove, say, strict=chosen.strict)


def _generate(chosen: GenerateTasksArguments) -> list[Task]:
    if chosen.to == TaskFormat.LIVEWEB:
        return generate_web_tasks(chosen.seed, chosen.count, chosen.held_out)
    return [*training_tasks(chosen.seed, chosen.count), *held_out_tasks(chosen.seed, chosen.held_out)]


def _attack(found: Dataset, chosen: AttackTasksArguments, say: Callable[[str], None]) -> CommandOutcome:
    """Try the chosen attacks on every usable task that has tests.  Raises UserError if there is none of either."""
    attacks = [each for each in ATTACKS if any(fnmatch(each.name, glob) for glob in chosen.attack or ("*",))]
    if not attacks:
        raise UserError(
            f"--attack {' '.join(chosen.attack)} matches none of: {', '.join(each.name for each in ATTACKS)}"
        )
    level = chosen.level
    tested = [task for task in found.tasks if task.gradable and not task.answer]
    graded = [_at_level(task, level) for task in tested] if level else tested
    tasks = [task for task in graded if _can_pass(task.in_steps[-1])]
    if without := len(graded) - len(tasks):
        say(f"{without} of {len(found.tasks)} tasks are left out: they declare no artifacts, so nothing passes")
    if not tasks:
        raise UserError(f"{chosen.tasks} has no task that could pass its tests: {_why_none(found, graded)}")
    if untested := len(found.tasks) - len(graded):
        say(f"{untested} of {len(found.tasks)} tasks are left out: they have no tests")
    trials = plan_trials(tasks, attacks)
    with report_attack_progress(len(trials), error_console()) as add:
        results = _in_sandboxes(
            chosen, tasks, lambda environment, at_once: try_attacks(trials, environment, at_once, on_result=add)
        )
    code, answer = report_attacks(results, say)
    return code, answer | {"left_out": untested + without}


def _why_none(found: Dataset, graded: list[Task]) -> str:
    """Return why nothing can be attacked."""
    if not found.tasks:
        return "none can be used, and longshore tasks validate names each problem"
    return "they declare no artifacts" if graded else "they have no tests, only answers to compare with or none"


def _can_pass(task: Task) -> bool:
    """Return whether anything of an agent reaches the tests."""
    return task.grading is not GradingLevel.ARTIFACTS or task.carries_artifacts


def _at_level(task: Task, level: GradingLevel) -> Task:
    """Return ``task`` with this grading level; of several steps, it is the last one's."""
    last = (replace(step, grading=level) for step in task.steps[-1:])
    return replace(task, grading=level, steps=(*task.steps[:-1], *last))


def _in_sandboxes(
    chosen: TryTasksArguments,
    tasks: Sequence[Task],
    trial: Callable[[ProofEnvironment, int], Coroutine[None, None, list[Result]]],
) -> list[Result]:
    """Return what ``trial`` finds, given real sandboxes and how many of them it may use at a time.

    Raises UserError if a solution needs the browser and there is none."""
    programs = BROWSER_PROGRAMS if any(map(has_web_oracle, tasks)) else None
    if programs:
        require_browser(current_host().home)

    async def in_pool() -> list[Result]:
        name = f"try-{uuid.uuid4().hex[:8]}"
        containers = chosen.proxy_settings(
            ContainerSettings, allow_registries=chosen.allow_registry, max_lifetime_s=SERVICE_LIFETIME_S
        )
        settings = PoolSettings(name, name, chosen.concurrency, containers=containers, agent_programs=programs)
        async with SandboxPool(settings) as pool:
            return await trial(pool_proof_environment(pool), chosen.concurrency)

    return asyncio.run(in_pool())


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
