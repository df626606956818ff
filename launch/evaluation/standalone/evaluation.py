"""One evaluation, from what is asked to what it came to: the same for the command and for a sweep of them.

An engine that serves the model may be shared by the evaluations of it, one after the other or at a time; without one
each has its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import orjson
from rich.console import Console

from launch.config import RunConfig, load_recipe
from launch.evaluation.attempts import AttemptId, AttemptRecord, plan_attempts, remaining_attempts
from launch.evaluation.evaluation_options import EvaluationOptions, SolverKind
from launch.evaluation.results.csv_tables import render_results_csv, render_tasks_csv
from launch.evaluation.results.evaluation_folder import TERMINALS_FOLDER, EvaluationFolder, read_spec
from launch.evaluation.results.evaluation_page import render_evaluation_page
from launch.evaluation.results.evaluation_settings import build_evaluation_settings, write_evaluation_settings
from launch.evaluation.results.evaluation_summary import (
    AgentFacts,
    EvalFacts,
    EvaluationDescription,
    EvaluationSummary,
    summarise_attempts,
)
from launch.evaluation.task_selection import TaskSelection, select_tasks
from protocol.errors import UserError
from protocol.events import JsonValue

if TYPE_CHECKING:
    from actors.agents.agent import Agent
    from actors.engines.interface import Engine
    from actors.workers.settings import WorkerSpec
    from launch.evaluation.solvers.solver import Solver


_LOCAL_SANDBOXES = ("sandbox.provider=docker", "sandbox.urls=", "sandbox.callback=", "sandbox.group_slots=false",
         "sandbox.options={}")  # fmt: skip
"""Attempts have this machine's sandboxes, wherever a run's are."""


@dataclass(frozen=True, slots=True)
class StandaloneEvaluation:
    options: EvaluationOptions
    config: RunConfig
    task_selection: TaskSelection
    plan: tuple[AttemptId, ...]
    spec: Mapping[str, JsonValue]
    """All that a score depends on."""

    @property
    def concurrency(self) -> int:
        return self.options.concurrency or self.config.rollout.episodes_per_worker

    def remaining_attempts(self, done: Mapping[AttemptId, AttemptRecord]) -> list[AttemptId]:
        """What is still to be run."""
        return remaining_attempts(self.plan, done, retry_errors=self.options.retry_errors)

    def summarise(self, name: str, done: Mapping[AttemptId, AttemptRecord]) -> EvaluationSummary:
        return summarise_attempts(self._description(name), self.plan, done, seed=self.options.seed)

    def _description(self, name: str) -> EvaluationDescription:
        wanted, config, agent = self.options, self.config, self.config.agent
        kind = "harness" if agent.harness else agent.kind
        platforms = {
            SolverKind.SERVED: "sglang",
            SolverKind.URL: "url",
            SolverKind.ORACLE: "none",
            SolverKind.NOOP: "none",
        }
        return EvaluationDescription(
            trial_name=name,
            experiment_name=config.run.name,
            model_platform=platforms[wanted.solver],
            model_type=wanted.model_name or wanted.model or wanted.solver.value,
            dataset=wanted.tasks,
            agent=AgentFacts(kind, agent.prompt_file, agent.context_tokens, agent.max_new_tokens, agent.max_turns),
            eval=EvalFacts(wanted.attempts, self.concurrency),
        )


def load_local_recipe(recipe: str, overrides: Sequence[str]) -> RunConfig:
    """Raises ConfigError."""
    config = load_recipe(recipe, overrides)
    return config if config.sandbox.uses_worker_pools else load_recipe(recipe, [*overrides, *_LOCAL_SANDBOXES])


def build_evaluation(wanted: EvaluationOptions) -> StandaloneEvaluation:
    """Raises UserError for what cannot be evaluated."""
    if _lacks_model_name(wanted):  # a folder goes on with its own, whichever the server lists first by now
        wanted = _with_model_name(wanted, str(read_spec(wanted.folder()).get("model name", "")))
    config = load_local_recipe(wanted.recipe, wanted.overrides)
    chosen = _solvable(wanted, select_tasks(wanted.tasks, wanted.datasets, wanted.only, wanted.task_ids))
    plan = plan_attempts(list(chosen.tasks), wanted.attempts)
    return StandaloneEvaluation(wanted, config, chosen, tuple(plan), wanted.build_spec(config, chosen))


async def resolve_model_name(evaluation: StandaloneEvaluation) -> StandaloneEvaluation:
    """By the name of its model, which the server at a URL is asked for where nobody has said it.  Raises UserError."""
    if not _lacks_model_name(evaluation.options):
        return evaluation
    from launch.evaluation.solvers.models import fetch_first_model

    wanted = _with_model_name(evaluation.options, await fetch_first_model(evaluation.options, evaluation.config))
    return replace(evaluation, options=wanted, spec=wanted.build_spec(evaluation.config, evaluation.task_selection))


def _lacks_model_name(wanted: EvaluationOptions) -> bool:
    return wanted.solver is SolverKind.URL and not wanted.model_name


def _with_model_name(wanted: EvaluationOptions, name: str) -> EvaluationOptions:
    """In the folder that it has without the name."""
    return replace(wanted, model_name=name, output=wanted.folder())


def _solvable(wanted: EvaluationOptions, chosen: TaskSelection) -> TaskSelection:
    """The tasks that can be: an oracle has to have a solution."""
    if wanted.solver is not SolverKind.ORACLE:
        return chosen
    without = [task.id for task in chosen.tasks.values() if not (task.solution or task.answer)]
    kept = {name: task for name, task in chosen.tasks.items() if name not in without}
    if not kept:
        raise UserError(f"no task of {wanted.tasks} has a solution: evaluate a model on them, --model PATH|URL")
    return chosen._replace(tasks=kept, left_out=(*chosen.left_out, *(f"{name}: it has no oracle" for name in without)))


def write_results(evaluation: StandaloneEvaluation, folder: EvaluationFolder) -> EvaluationSummary:
    """All that is made of the attempts, and how they were run."""
    wanted = evaluation.options
    write_evaluation_settings(folder.path, build_evaluation_settings(evaluation.config, wanted.tasks, wanted.datasets))
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
    engine: Engine | None = None,
) -> None:
    """Run the attempts ``to_run``.  Raises UserError and InfraError for what keeps all of them from being run."""
    from launch.evaluation.standalone.attempt_runner import run_attempts
    from launch.evaluation.standalone.evaluation_context import open_evaluation_context
    from launch.evaluation.standalone.evaluation_progress import report_progress

    terminals = folder.path / TERMINALS_FOLDER if evaluation.options.record else None
    with report_progress(len(to_run), console) as told:

        def on_record(record: AttemptRecord, trajectory: Mapping[str, JsonValue]) -> None:
            if evaluation.options.save_trajectories:
                folder.add_trajectory({"task": record.task, "number": record.number, **trajectory})
            folder.add_record(record)
            told.add(record)

        def player(settings: WorkerSpec, agent: Agent) -> AbstractAsyncContextManager[Solver]:
            return _open_solver(evaluation, folder, settings, agent, engine)

        async with open_evaluation_context(
            evaluation.config, folder.directory, evaluation.concurrency, player, terminals=terminals
        ) as ground:
            await run_attempts(to_run, evaluation.task_selection.tasks, ground, evaluation.concurrency, on_record)


@asynccontextmanager
async def _open_solver(
    evaluation: StandaloneEvaluation,
    folder: EvaluationFolder,
    settings: WorkerSpec,
    agent: Agent,
    engine: Engine | None,
) -> AsyncGenerator[Solver]:
    from launch.evaluation.solvers.models import (
        build_engine_spec,
        load_chat_format,
        remote_model_solver,
        serve_model,
        served_model_solver,
    )
    from launch.evaluation.solvers.solver import noop_solver, oracle_solver

    wanted, config = evaluation.options, evaluation.config
    match wanted.solver:
        case SolverKind.ORACLE:
            yield oracle_solver
        case SolverKind.NOOP:
            yield noop_solver
        case SolverKind.SERVED:
            server, chat = (
                build_engine_spec(wanted, config, folder.directory),
                await load_chat_format(wanted, config, agent),
            )
            async with (
                nullcontext(engine) if engine is not None else serve_model(server) as serves,
                served_model_solver(serves, chat, wanted, settings, agent) as player,
            ):
                yield player
        case SolverKind.URL:
            async with remote_model_solver(wanted, config, settings, agent) as player:
                yield player
