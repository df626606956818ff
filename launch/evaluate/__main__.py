"""``python -m launch.evaluate RECIPE …``: evaluate a model on tasks, with pass@k, errors by stage, tokens.

Exit code 0: each attempt has a verdict; 1: infrastructure failed some, which ``--retry-errors`` tries again.  Ctrl-C
stops; the same command goes on, and repeats nothing.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from launch.evaluation.attempts import AttemptId
from launch.evaluation.evaluation_options import EvaluateArguments, SolverKind, parse_options
from launch.evaluation.results.evaluation_folder import (
    EvaluationFolder,
    check_evaluation_folder,
    open_evaluation_folder,
    read_attempt_records,
)
from launch.evaluation.results.evaluation_summary import EvaluationSummary
from launch.evaluation.standalone.evaluation import (
    StandaloneEvaluation,
    build_evaluation,
    resolve_model_name,
    run_evaluation,
    write_results,
)
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, display_path, error_console, output_console
from protocol.events import JsonValue


def run(given: EvaluateArguments, out: JsonOutput) -> int:
    """Evaluate, and return 0 where each attempt has a verdict."""
    evaluation = build_evaluation(parse_options(given))
    folder = evaluation.options.folder()
    _check(evaluation)
    if evaluation.options.dry_run:
        out.set_result(_would_run(evaluation))
        return EXIT_OK
    summary = _run(asyncio.run(resolve_model_name(evaluation)))
    out.set_result(cast("dict[str, JsonValue]", {**asdict(summary), "output": str(folder)}))
    return EXIT_OK if summary.complete and not summary.error_count else EXIT_FAILED


def _check(evaluation: StandaloneEvaluation) -> None:
    """Before anything is written or started.  Raises UserError."""
    wanted = evaluation.options
    check_evaluation_folder(wanted.folder(), evaluation.spec)
    if wanted.solver is SolverKind.SERVED and evaluation.remaining_attempts(read_attempt_records(wanted.folder())):
        from launch.data.preparation import require_model_files

        require_model_files(Path(wanted.model))


def _would_run(evaluation: StandaloneEvaluation) -> dict[str, JsonValue]:
    folder, chosen = evaluation.options.folder(), evaluation.task_selection
    return {
        "what": dict(evaluation.spec),
        "output": str(folder),
        "tasks": list(chosen.tasks),
        "left_out": list(chosen.left_out),
        "planned": len(evaluation.plan),
        "to_run": len(evaluation.remaining_attempts(read_attempt_records(folder))),
    }


def _run(evaluation: StandaloneEvaluation) -> EvaluationSummary:
    from launch.processes.interruption import run_interruptible

    console, chosen, plan = error_console(), evaluation.task_selection, evaluation.plan
    for line in chosen.left_out:
        console.print(f"left out: {line}")
    with open_evaluation_folder(evaluation.options.folder(), evaluation.spec) as folder:
        to_run = evaluation.remaining_attempts(folder.records)
        console.print(
            f"{len(plan)} attempts at {len(chosen.tasks)} tasks, {len(to_run)} to run: {display_path(folder.path)}"
        )
        try:
            if to_run:
                again = f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"
                asyncio.run(run_interruptible(_work(evaluation, to_run, folder), again))
        finally:
            found = write_results(evaluation, folder)
        result = output_console()
        for k, each in found.pass_at_k.items():
            result.print(f"pass@{k}: {each.value:.1%} ({each.low:.1%} to {each.high:.1%}, {each.tasks} tasks)")
        if found.error_count:
            console.print(f"{found.error_count} attempts have no verdict: the same command with --retry-errors")
        result.print(f"report: {display_path(folder.path / 'report.html')}")
        return found


async def _work(
    evaluation: StandaloneEvaluation, to_run: Sequence[AttemptId], folder: EvaluationFolder
) -> dict[str, JsonValue]:
    await run_evaluation(evaluation, to_run, folder, error_console())
    return {}


COMMAND = Command("launch.evaluate", EvaluateArguments, run, json_options=("--json", "--dry-run"))

if __name__ == "__main__":
    sys.exit(COMMAND.main())
