"""``longshore evaluate [RECIPE] …``: evaluate a model on tasks: pass@k, errors, tokens.

Exit code 0: every attempt has a verdict; 1: infrastructure failed some, which ``--retry-errors`` runs again.  Ctrl-C
stops; the same command continues and repeats nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from actors.harnesses.catalog import require_temperature
from launch.config.toml_text import print_toml
from launch.evaluation.evaluation_options import EvaluateArguments, SolverKind
from launch.evaluation.results.evaluation_folder import (
    EvaluationFolder,
    check_evaluation_folder,
    open_evaluation_folder,
    read_attempt_records,
)
from launch.evaluation.results.evaluation_summary import EvaluationSummary, most_frequent_error
from launch.evaluation.standalone.evaluation import (
    StandaloneEvaluation,
    build_evaluation,
    resolve_model_name,
    run_evaluation,
    write_results,
)
from protocol.cli.command import Command, typed_command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.evaluation import AttemptId, AttemptRecord
from protocol.events import JsonValue
from protocol.trajectory import InfraFailure


def run(given: EvaluateArguments, out: JsonOutput) -> int:
    """Evaluate, and return 0 if every attempt has a verdict."""
    given.check()
    evaluation = build_evaluation(given)
    _check(evaluation)
    folder, notice = evaluation.arguments.folder, evaluation.selection.notice
    if notice:
        error_console().print(f"warning: {notice}")
    if given.dry_run:
        print_toml(_describe_plan(evaluation), out)
        return EXIT_OK
    summary = _run(asyncio.run(resolve_model_name(evaluation)))
    out.set_result(cast("dict[str, JsonValue]", {**asdict(summary), "output": str(folder)}))
    return EXIT_OK if summary.complete and not summary.error_count else EXIT_FAILED


def _check(evaluation: StandaloneEvaluation) -> None:
    """Raise UserError for what can be known to fail, before anything is written or started."""
    given = evaluation.arguments
    check_evaluation_folder(given.folder, evaluation.spec)
    if given.solver is SolverKind.SERVED and evaluation.remaining_attempts(read_attempt_records(given.folder)):
        from launch.data.preparation import require_model_files
        from launch.data.prompt_lengths import measure_first_prompts, require_room_for_replies

        model, config = require_model_files(Path(given.model or "")), evaluation.config
        if (harness := config.agent.published_harness) is not None:
            require_temperature(harness, 0.0 if given.greedy else given.temperature)
        if not config.agent.harness:
            tasks = evaluation.selection.tasks.values()
            require_room_for_replies(config, measure_first_prompts(config, model, tasks))


def describe_errors(unjudged: Sequence[AttemptRecord]) -> Iterator[str]:
    """Yield what to do about attempts without a verdict. Pure."""
    of_tasks = {
        record.task: record.failure.message
        for record in unjudged
        if record.failure and record.failure.kind is InfraFailure.TASK_FAULT
    }
    for task, why in of_tasks.items():
        yield f"{task} would fail again: {why}"
    if others := [record for record in unjudged if record.task not in of_tasks]:
        have = "1 attempt has" if len(others) == 1 else f"{len(others)} attempts have"
        yield f"{have} no verdict ({most_frequent_error(others)}): repeat the command with --retry-errors"


def _describe_plan(evaluation: StandaloneEvaluation) -> dict[str, JsonValue]:
    folder, selection = evaluation.arguments.folder, evaluation.selection
    return {
        "evaluation": asdict(evaluation.spec),
        "output": str(folder),
        "tasks": list(selection.tasks),
        "left_out": list(selection.left_out),
        "planned": len(evaluation.plan),
        "to_run": len(evaluation.remaining_attempts(read_attempt_records(folder))),
    }


def _run(evaluation: StandaloneEvaluation) -> EvaluationSummary:
    from launch.processes.interruption import run_interruptible

    console, selection, plan = error_console(), evaluation.selection, evaluation.plan
    for line in selection.left_out:
        console.print(f"left out: {line}")
    with open_evaluation_folder(evaluation.arguments.folder, evaluation.spec) as folder:
        to_run = evaluation.remaining_attempts(folder.records)
        console.print(
            f"{len(plan)} attempts at {len(selection.tasks)} tasks, {len(to_run)} to run: {display_path(folder.path)}"
        )
        try:
            if to_run:
                asyncio.run(run_interruptible(_work(evaluation, to_run, folder), typed_command("evaluate")))
        finally:
            summary = write_results(evaluation, folder)
        result = output_console()
        for k, estimate in summary.pass_at_k.items():
            result.print(
                f"pass@{k}: {estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%}, {estimate.tasks} tasks)"
            )
        for family, each in summary.families.items() if len(summary.families) > 1 else ():
            result.print(f"{family or '–'}: {each.pass_ratio:.1%} of {each.graded} passed, reward {each.reward:.3f}")
        records = [folder.records[key] for key in plan if key in folder.records]
        for line in describe_errors([record for record in records if record.verdict is None]):
            console.print(line)
        if warning := summary.tool_call_warning:
            console.print(f"warning: {warning}")
        result.print(f"report: {display_path(folder.path / 'report.html')}")
        return summary


async def _work(
    evaluation: StandaloneEvaluation, to_run: Sequence[AttemptId], folder: EvaluationFolder
) -> dict[str, JsonValue]:
    await run_evaluation(evaluation, to_run, folder, error_console())
    return {}


COMMAND = Command("evaluate", EvaluateArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
