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
from launch.evaluate.arguments import Asked, Who
from launch.evaluate.attempts import AttemptId, Record, left, planned
from launch.evaluate.folder import TERMINALS, EvaluationFolder, read_what
from launch.evaluate.page import page
from launch.evaluate.setting import setting_of, write_setting
from launch.evaluate.summary import About, AgentFacts, EvalFacts, Summary, summarised
from launch.evaluate.tables import results_csv, tasks_csv
from launch.evaluate.tasks import Chosen, choose
from protocol.errors import UserError
from protocol.events import Json

if TYPE_CHECKING:
    from actors.agents.agent import Agent
    from actors.engines.engine import Engine
    from actors.worker import WorkerSettings
    from launch.evaluate.players import Player


_HERE = ("sandbox.provider=docker", "sandbox.urls=", "sandbox.callback=", "sandbox.group_slots=false",
         "sandbox.options={}")  # fmt: skip
"""Attempts have this machine's sandboxes, wherever a run's are."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    wanted: Asked
    config: RunConfig
    chosen: Chosen
    plan: tuple[AttemptId, ...]
    what: Mapping[str, Json]
    """All that a score depends on."""

    @property
    def at_once(self) -> int:
        return self.wanted.concurrency or self.config.rollout.episodes_per_worker

    def left(self, done: Mapping[AttemptId, Record]) -> list[AttemptId]:
        """What is still to be run."""
        return left(self.plan, done, retry_errors=self.wanted.retry_errors)

    def summary(self, name: str, done: Mapping[AttemptId, Record]) -> Summary:
        return summarised(self._about(name), self.plan, done, seed=self.wanted.seed)

    def _about(self, name: str) -> About:
        wanted, config, agent = self.wanted, self.config, self.config.agent
        kind = "harness" if agent.harness else agent.kind
        platforms = {Who.SERVED: "sglang", Who.URL: "url", Who.ORACLE: "none", Who.NOOP: "none"}
        return About(
            trial_name=name,
            experiment_name=config.run.name,
            model_platform=platforms[wanted.who],
            model_type=wanted.model_name or wanted.model or wanted.who.value,
            dataset=wanted.tasks,
            agent=AgentFacts(kind, agent.prompt_file, agent.context_tokens, agent.max_new_tokens, agent.max_turns),
            eval=EvalFacts(wanted.attempts, self.at_once),
        )


def here(recipe: str, overrides: Sequence[str]) -> RunConfig:
    """Raises ConfigError."""
    config = load_recipe(recipe, overrides)
    return config if config.sandbox.own else load_recipe(recipe, [*overrides, *_HERE])


def evaluation_of(wanted: Asked) -> Evaluation:
    """Raises UserError for what cannot be evaluated."""
    if _unnamed(wanted):  # a folder goes on with its own, whichever the server lists first by now
        wanted = _of_model(wanted, str(read_what(wanted.folder()).get("model name", "")))
    config = here(wanted.recipe, wanted.overrides)
    chosen = _attempted(wanted, choose(wanted.tasks, wanted.datasets, wanted.only, wanted.task_ids))
    plan = planned(list(chosen.tasks), wanted.attempts)
    return Evaluation(wanted, config, chosen, tuple(plan), wanted.what(config, chosen))


async def named(evaluation: Evaluation) -> Evaluation:
    """By the name of its model, which the server at a URL is asked for where nobody has said it.  Raises UserError."""
    if not _unnamed(evaluation.wanted):
        return evaluation
    from launch.evaluate.model import first_model

    wanted = _of_model(evaluation.wanted, await first_model(evaluation.wanted, evaluation.config))
    return replace(evaluation, wanted=wanted, what=wanted.what(evaluation.config, evaluation.chosen))


def _unnamed(wanted: Asked) -> bool:
    return wanted.who is Who.URL and not wanted.model_name


def _of_model(wanted: Asked, name: str) -> Asked:
    """In the folder that it has without the name."""
    return replace(wanted, model_name=name, output=wanted.folder())


def _attempted(wanted: Asked, chosen: Chosen) -> Chosen:
    """The tasks that can be: an oracle has to have a solution."""
    if wanted.who is not Who.ORACLE:
        return chosen
    without = [task.id for task in chosen.tasks.values() if not (task.solution or task.answer)]
    kept = {name: task for name, task in chosen.tasks.items() if name not in without}
    if not kept:
        raise UserError(f"no task of {wanted.tasks} has a solution: evaluate a model on them, --model PATH|URL")
    return chosen._replace(tasks=kept, left_out=(*chosen.left_out, *(f"{name}: it has no oracle" for name in without)))


def write_outputs(evaluation: Evaluation, folder: EvaluationFolder) -> Summary:
    """All that is made of the attempts, and how they were run."""
    wanted = evaluation.wanted
    write_setting(folder.path, setting_of(evaluation.config, wanted.tasks, wanted.datasets))
    plan, summary = evaluation.plan, evaluation.summary(folder.path.name, folder.done)
    folder.write("results.csv", results_csv(plan, folder.done))
    folder.write("evaluated_tasks.csv", tasks_csv(plan, folder.done))
    folder.write("summary.json", orjson.dumps(asdict(summary), option=orjson.OPT_INDENT_2).decode() + "\n")
    folder.write("report.html", page(summary, plan, folder.done))
    return summary


async def work(
    evaluation: Evaluation,
    to_run: Sequence[AttemptId],
    folder: EvaluationFolder,
    console: Console,
    engine: Engine | None = None,
) -> None:
    """Run the attempts ``to_run``.  Raises UserError and InfraError for what keeps all of them from being run."""
    from launch.evaluate.ground import open_ground
    from launch.evaluate.progress import progress
    from launch.evaluate.runner import run_attempts

    terminals = folder.path / TERMINALS if evaluation.wanted.record else None
    with progress(len(to_run), console) as told:

        def on_record(record: Record, trajectory: Mapping[str, Json]) -> None:
            if evaluation.wanted.save_trajectories:
                folder.add_trajectory({"task": record.task, "number": record.number, **trajectory})
            folder.add(record)
            told.add(record)

        def player(settings: WorkerSettings, agent: Agent) -> AbstractAsyncContextManager[Player]:
            return _player(evaluation, folder, settings, agent, engine)

        async with open_ground(
            evaluation.config, folder.directory, evaluation.at_once, player, terminals=terminals
        ) as ground:
            await run_attempts(to_run, evaluation.chosen.tasks, ground, evaluation.at_once, on_record)


@asynccontextmanager
async def _player(
    evaluation: Evaluation, folder: EvaluationFolder, settings: WorkerSettings, agent: Agent, engine: Engine | None
) -> AsyncGenerator[Player]:
    from launch.evaluate.model import player_of, remote, server_settings, serving, spoken
    from launch.evaluate.players import noop, oracle

    wanted, config = evaluation.wanted, evaluation.config
    match wanted.who:
        case Who.ORACLE:
            yield oracle
        case Who.NOOP:
            yield noop
        case Who.SERVED:
            server, chat = server_settings(wanted, config, folder.directory), await spoken(wanted, config, agent)
            async with (
                nullcontext(engine) if engine is not None else serving(server) as serves,
                player_of(serves, chat, wanted, settings, agent) as player,
            ):
                yield player
        case Who.URL:
            async with remote(wanted, config, settings, agent) as player:
                yield player
