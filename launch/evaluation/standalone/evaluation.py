"""One standalone evaluation from its arguments to its results, with an engine of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import orjson
from rich.console import Console

from actors.agents.settings import ToolsetKind
from launch.config import RunConfig, load_recipe
from launch.evaluation.evaluation_options import EvaluateArguments, SolverKind
from launch.evaluation.results.csv_tables import render_results_csv, render_tasks_csv
from launch.evaluation.results.evaluation_folder import (
    TERMINALS_FOLDER,
    EvaluationFolder,
    EvaluationSpec,
    is_evaluation,
    read_spec,
)
from launch.evaluation.results.evaluation_page import render_evaluation_page
from launch.evaluation.results.evaluation_settings import build_evaluation_settings, write_evaluation_settings
from launch.evaluation.results.evaluation_summary import (
    AgentFacts,
    EvalFacts,
    EvaluationDescription,
    EvaluationSummary,
    summarise_attempts,
)
from launch.evaluation.results.liveweb_samples import build_liveweb_sample
from launch.evaluation.results.swe_synth_samples import build_sample
from launch.evaluation.results.trainable_messages import NoSample
from launch.evaluation.standalone.attempt_plan import plan_attempts, remaining_attempts
from launch.evaluation.task_selection import TaskSelection, select_tasks
from protocol.errors import UserError
from protocol.evaluation import AttemptId, AttemptRecord
from protocol.events import JsonValue

if TYPE_CHECKING:
    from actors.agents.agent import Agent
    from actors.workers.settings import WorkerSpec
    from launch.evaluation.solvers.solver import Solver

_WEB_AGENT = ("agent.kind=json", "agent.toolset=browser", "agent.prompt=browser-1")
_LOCAL_SANDBOXES = (
    *("sandbox.provider=docker", "sandbox.urls=", "sandbox.callback=", "sandbox.group_slots=false"),
    "sandbox.options={}",
)
"""Attempts use local sandboxes, whatever the recipe's run uses."""


@dataclass(frozen=True, slots=True)
class StandaloneEvaluation:
    arguments: EvaluateArguments
    config: RunConfig
    selection: TaskSelection
    plan: tuple[AttemptId, ...]
    spec: EvaluationSpec

    @property
    def concurrency(self) -> int:
        return self.arguments.concurrency or self.config.rollout.episodes_per_worker

    def remaining_attempts(self, done: Mapping[AttemptId, AttemptRecord]) -> list[AttemptId]:
        """Return the attempts still to be run."""
        return remaining_attempts(self.plan, done, retry_errors=self.arguments.retry_errors)

    def summarise(self, name: str, done: Mapping[AttemptId, AttemptRecord]) -> EvaluationSummary:
        return summarise_attempts(self._description(name), self.plan, done, seed=self.arguments.seed)

    def _description(self, name: str) -> EvaluationDescription:
        given, config, agent = self.arguments, self.config, self.config.agent
        return EvaluationDescription(
            trial_name=name,
            experiment_name=config.run.name,
            model_platform={SolverKind.SERVED: "sglang", SolverKind.URL: "url"}.get(given.solver, "none"),
            model_type=given.model_name or given.model or given.solver.value,
            dataset=given.tasks,
            agent=AgentFacts(
                "harness" if agent.harness else agent.kind,
                agent.prompt_file,
                agent.context_tokens,
                agent.max_new_tokens,
                agent.max_turns,
            ),
            eval=EvalFacts(given.attempts, self.concurrency),
        )


def load_local_recipe(recipe: str, overrides: Sequence[str]) -> RunConfig:
    """Load a recipe with local sandboxes.  Raises ConfigError."""
    config = load_recipe(recipe, overrides)
    return config if config.sandbox.uses_worker_pools else load_recipe(recipe, [*overrides, *_LOCAL_SANDBOXES])


def build_evaluation(given: EvaluateArguments) -> StandaloneEvaluation:
    """Build an evaluation from checked arguments.  Raises UserError for what cannot be evaluated."""
    if _lacks_model_name(given) and is_evaluation(given.folder):
        # A folder keeps its model, even if the server lists another one first by now.
        given = _with_model_name(given, read_spec(given.folder).model_name)
    config = load_local_recipe(given.recipe, given.config_overrides)
    chosen = select_tasks(given.tasks, given.datasets, given.only, given.selected_task_ids, given.limit)
    selected = chosen.with_network(config.sandbox.network)
    selection = _require_solutions(given, selected) if given.oracle else selected
    config = _with_browser(given, config, selection)
    plan = plan_attempts(list(selection.tasks), given.attempts)
    return StandaloneEvaluation(given, config, selection, tuple(plan), given.build_spec(config, selection))


def _with_browser(given: EvaluateArguments, config: RunConfig, selection: TaskSelection) -> RunConfig:
    """Return the settings with which tasks of the web can be done.  Raises UserError for a model without a browser."""
    web = next((task.id for task in selection.tasks.values() if task.start_url), "")
    if not web or config.agent.toolset is ToolsetKind.BROWSER or config.agent.harness:
        return config
    if given.solver in {SolverKind.ORACLE, SolverKind.NOOP}:
        return load_local_recipe(given.recipe, [*given.config_overrides, *_WEB_AGENT])
    raise UserError(
        f"task {web} begins on a page of the web: give the agent a browser, with the recipe art_liveweb or "
        "--set agent.toolset=browser"
    )


async def resolve_model_name(evaluation: StandaloneEvaluation) -> StandaloneEvaluation:
    """Return the evaluation with the name of its model, which a server at a URL is asked for if needed.

    Raises UserError."""
    given, config = evaluation.arguments, evaluation.config
    if not _lacks_model_name(given):
        return evaluation
    from launch.evaluation.solvers.models import fetch_first_model

    named = _with_model_name(given, await fetch_first_model(given, config))
    return replace(evaluation, arguments=named, spec=named.build_spec(config, evaluation.selection))


def _lacks_model_name(given: EvaluateArguments) -> bool:
    return given.solver is SolverKind.URL and not given.model_name


def _with_model_name(given: EvaluateArguments, name: str) -> EvaluateArguments:
    """Set the model's name without changing the folder."""
    return given.model_copy(update={"model_name": name, "output": given.folder})


def _require_solutions(given: EvaluateArguments, selection: TaskSelection) -> TaskSelection:
    """Drop the tasks that the oracle cannot solve.  Raises UserError if none is left."""
    without = [task.id for task in selection.tasks.values() if not task.has_oracle]
    kept = {name: task for name, task in selection.tasks.items() if name not in without}
    if not kept:
        raise UserError(f"no task of {given.tasks} has a solution: evaluate a model on them, --model PATH|URL")
    left_out = (*selection.left_out, *(f"{name}: it has no solution" for name in without))
    return selection._replace(tasks=kept, left_out=left_out)


def write_results(evaluation: StandaloneEvaluation, folder: EvaluationFolder) -> EvaluationSummary:
    """Write settings, tables, summary and page from the attempts of ``folder``."""
    given = evaluation.arguments
    write_evaluation_settings(folder.path, build_evaluation_settings(evaluation.config, given.tasks, given.datasets))
    plan, summary = evaluation.plan, evaluation.summarise(folder.path.name, folder.records)
    folder.write_text("results.csv", render_results_csv(plan, folder.records))
    folder.write_text("evaluated_tasks.csv", render_tasks_csv(plan, folder.records))
    folder.write_text("summary.json", orjson.dumps(asdict(summary), option=orjson.OPT_INDENT_2).decode() + "\n")
    folder.write_text("report.html", render_evaluation_page(summary, plan, folder.records))
    return summary


async def run_evaluation(
    evaluation: StandaloneEvaluation,
    to_run: Sequence[AttemptId],
    folder: EvaluationFolder,
    console: Console,
) -> None:
    """Run the attempts ``to_run``.

    Raises UserError and InfraError for what prevents all of them."""
    from launch.evaluation.standalone.attempt_runner import run_attempts
    from launch.evaluation.standalone.evaluation_context import open_evaluation_context
    from launch.evaluation.standalone.evaluation_progress import report_progress

    given = evaluation.arguments
    model = given.model_name or given.model or given.solver.value
    without_sample = Counter[str]()
    with report_progress(len(to_run), console) as progress:

        def on_record(record: AttemptRecord, trajectory: Mapping[str, JsonValue]) -> None:
            if given.save_trajectories:
                folder.add_trajectory({"task": record.task, "number": record.number, **trajectory})
                task = evaluation.selection.tasks[record.task]
                liveweb = build_liveweb_sample(task, record, trajectory)
                sample = build_sample(task, record, trajectory, model) or liveweb
                if isinstance(sample, NoSample):
                    without_sample[sample.reason] += 1
                elif sample:
                    folder.add_sample(sample)
            folder.add_record(record)
            progress.add(record)

        def open_solver(settings: WorkerSpec, agent: Agent) -> AbstractAsyncContextManager[Solver]:
            return _open_solver(evaluation, folder, settings, agent)

        async with open_evaluation_context(
            evaluation.config,
            folder.directory,
            evaluation.concurrency,
            open_solver,
            greedy=given.greedy,
            terminals=None if given.no_record else folder.path / TERMINALS_FOLDER,
        ) as context:
            tasks = evaluation.selection.tasks
            await run_attempts(to_run, tasks, context, evaluation.concurrency, on_record, console=console)
    for reason, count in without_sample.items():
        have = "attempt has" if count == 1 else "attempts have"
        console.print(f"{count} {have} no sample, because {reason}", markup=False, soft_wrap=True)


@asynccontextmanager
async def _open_solver(
    evaluation: StandaloneEvaluation,
    folder: EvaluationFolder,
    settings: WorkerSpec,
    agent: Agent,
) -> AsyncGenerator[Solver]:
    from launch.evaluation.solvers.models import (
        build_engine_spec,
        load_calling_agent,
        load_chat_format,
        remote_model_solver,
        serve_model,
        served_model_solver,
    )
    from launch.evaluation.solvers.solver import noop_solver, oracle_solver

    given, config = evaluation.arguments, evaluation.config
    match given.solver:
        case SolverKind.ORACLE:
            yield oracle_solver
        case SolverKind.NOOP:
            yield noop_solver
        case SolverKind.SERVED:
            agent = await load_calling_agent(given, settings)
            spec, chat = (
                build_engine_spec(given, config, folder.directory),
                await load_chat_format(given, config, agent),
            )
            async with (
                serve_model(spec) as served,
                served_model_solver(served, chat, given, settings, agent) as solver,
            ):
                yield solver
        case SolverKind.URL:
            async with remote_model_solver(given, config, settings, agent) as solver:
                yield solver
