"""``python -m launch.evaluate RECIPE …``: evaluate a model on tasks, with pass@k, errors by stage, tokens.

Exit code 0: each attempt has a verdict; 1: infrastructure failed some, which ``--retry-errors`` tries again.  Ctrl-C
stops; the same command goes on, and repeats nothing.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import orjson

from launch.config import RunConfig, load_recipe
from launch.evaluate.arguments import Asked, Who, asked, parser
from launch.evaluate.attempts import AttemptId, Record, left, planned
from launch.evaluate.folder import EvaluationFolder, check, opened, read_attempts
from launch.evaluate.page import page
from launch.evaluate.summary import About, AgentFacts, EvalFacts, Summary, summarised
from launch.evaluate.tables import results_csv, tasks_csv
from launch.evaluate.tasks import Chosen, choose
from protocol.cli.exits import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.output import JsonOutput, error_console, shown
from protocol.cli.parser import check_text
from protocol.errors import UserError
from protocol.events import Json

if TYPE_CHECKING:
    from actors.worker import WorkerSettings
    from launch.evaluate.players import Player
    from launch.evaluate.runner import Ground


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return main_guard(lambda: _main(words))


def _main(words: Sequence[str]) -> int:
    with JsonOutput("--json" in words or "--dry-run" in words) as out:
        check_text(words)
        wanted = asked(parser().parse_args(words))
        config = load_recipe(wanted.recipe, wanted.overrides)
        chosen = _attempted(wanted, choose(wanted.tasks, wanted.datasets, wanted.only))
        what = wanted.what(config, chosen)
        plan = planned(list(chosen.tasks), wanted.attempts)
        if wanted.dry_run:
            check(wanted.folder(), what)
            out.set(_would_run(wanted, chosen, plan, what))
            return EXIT_OK
        summary = _run(wanted, config, chosen, plan, what)
        out.set(cast("dict[str, Json]", {**asdict(summary), "output": str(wanted.folder())}))
        return EXIT_OK if summary.complete and not summary.error_count else EXIT_FAILED


def _attempted(wanted: Asked, chosen: Chosen) -> Chosen:
    """The tasks that can be: an oracle has to have a solution."""
    if wanted.who is not Who.ORACLE:
        return chosen
    without = [task.id for task in chosen.tasks.values() if not (task.solution or task.answer)]
    kept = {name: task for name, task in chosen.tasks.items() if name not in without}
    if not kept:
        raise UserError(f"no task of {wanted.tasks} has a solution: evaluate a model on them, --model PATH|URL")
    return chosen._replace(tasks=kept, left_out=(*chosen.left_out, *(f"{name}: it has no oracle" for name in without)))


def _would_run(wanted: Asked, chosen: Chosen, plan: Sequence[AttemptId], what: Mapping[str, Json]) -> dict[str, Json]:
    to_run = left(plan, read_attempts(wanted.folder()), retry_errors=wanted.retry_errors)
    return {
        "what": dict(what),
        "output": str(wanted.folder()),
        "tasks": list(chosen.tasks),
        "left_out": list(chosen.left_out),
        "planned": len(plan),
        "to_run": len(to_run),
    }


def _run(
    wanted: Asked, config: RunConfig, chosen: Chosen, plan: Sequence[AttemptId], what: Mapping[str, Json]
) -> Summary:
    from launch.cluster import interruptible

    console = error_console()
    for line in chosen.left_out:
        console.print(f"left out: {line}")
    with opened(wanted.folder(), what) as folder:
        to_run = left(plan, folder.done, retry_errors=wanted.retry_errors)
        console.print(f"{len(plan)} attempts at {len(chosen.tasks)} tasks, {len(to_run)} to run: {shown(folder.path)}")

        def summary() -> Summary:
            return summarised(_about(wanted, config, folder), plan, folder.done, seed=wanted.seed)

        try:
            if to_run:
                work = _work(wanted, config, chosen, to_run, folder)
                asyncio.run(interruptible(work, f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"))
        finally:
            _write(folder, summary(), plan)
        found = summary()
        for k, each in found.pass_at_k.items():
            console.print(f"pass@{k}: {each.value:.1%} ({each.low:.1%} to {each.high:.1%}, {each.tasks} tasks)")
        if found.error_count:
            console.print(f"{found.error_count} attempts have no verdict: the same command with --retry-errors")
        console.print(f"report: {shown(folder.path / 'report.html')}")
        return found


def _write(folder: EvaluationFolder, summary: Summary, plan: Sequence[AttemptId]) -> None:
    folder.write("results.csv", results_csv(plan, folder.done))
    folder.write("evaluated_tasks.csv", tasks_csv(plan, folder.done))
    folder.write("summary.json", orjson.dumps(asdict(summary), option=orjson.OPT_INDENT_2).decode() + "\n")
    folder.write("report.html", page(summary, plan, folder.done))


def _about(wanted: Asked, config: RunConfig, folder: EvaluationFolder) -> About:
    agent, kind = config.agent, "harness" if config.agent.harness else config.agent.kind
    platforms = {Who.SERVED: "sglang", Who.URL: "url", Who.ORACLE: "none", Who.NOOP: "none"}
    model = wanted.model_name or wanted.model or wanted.who.value
    return About(
        trial_name=folder.path.name,
        experiment_name=config.run.name,
        model_platform=platforms[wanted.who],
        model_type=model,
        dataset=wanted.tasks,
        agent=AgentFacts(kind, agent.prompt, agent.context_tokens, agent.max_new_tokens, agent.max_turns),
        eval=EvalFacts(wanted.attempts, _at_once(wanted, config)),
    )


def _at_once(wanted: Asked, config: RunConfig) -> int:
    return wanted.concurrency or config.rollout.episodes_per_worker


async def _work(
    wanted: Asked, config: RunConfig, chosen: Chosen, to_run: Sequence[AttemptId], folder: EvaluationFolder
) -> dict[str, Json]:
    from launch.evaluate.progress import progress
    from launch.evaluate.runner import run_attempts

    at_once = _at_once(wanted, config)
    with progress(len(to_run), error_console()) as told:

        def on_record(record: Record, trajectory: Mapping[str, Json]) -> None:
            if wanted.save_trajectories:
                folder.add_trajectory({"task": record.task, "number": record.number, **trajectory})
            folder.add(record)
            told.add(record)

        async with _ground(wanted, config, folder) as ground:
            await run_attempts(to_run, chosen.tasks, ground, at_once, on_record)
    return {}


@asynccontextmanager
async def _ground(wanted: Asked, config: RunConfig, folder: EvaluationFolder) -> AsyncGenerator[Ground]:
    from actors.agents.choice import agent_of
    from actors.rewards.rewarding import open_rewards
    from launch.evaluate.runner import Ground
    from launch.nodes import Node
    from launch.settings import Share, worker_settings
    from sandbox.host import answering, current_host
    from sandbox.pool import SandboxPool

    host = answering(current_host())
    at_once, directory = _at_once(wanted, config), folder.directory
    settings = worker_settings(
        config,
        directory,
        folder.path,
        "evaluate",
        Node("node-0", "", "127.0.0.1"),
        endpoint="",
        keys=None,
        share=Share(at_once, config.sandbox.start_concurrency),
    )
    agent = agent_of(settings.agent)
    async with (
        open_rewards(settings.reward) as rewards,
        SandboxPool(settings.pool, host) as pool,
        _player(wanted, config, folder, settings) as player,
    ):
        yield Ground(pool, settings, agent.tools, player, rewards.unjudged())


@asynccontextmanager
async def _player(
    wanted: Asked, config: RunConfig, folder: EvaluationFolder, settings: WorkerSettings
) -> AsyncGenerator[Player]:
    from actors.agents.choice import agent_of
    from launch.evaluate.model import remote, served
    from launch.evaluate.players import noop, oracle

    match wanted.who:
        case Who.ORACLE:
            yield oracle
        case Who.NOOP:
            yield noop
        case Who.SERVED:
            async with served(wanted, config, folder.directory, settings, agent_of(settings.agent)) as player:
                yield player
        case Who.URL:
            async with remote(wanted, config, settings, agent_of(settings.agent)) as player:
                yield player


if __name__ == "__main__":
    sys.exit(main())
