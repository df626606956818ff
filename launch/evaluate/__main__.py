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

from launch.evaluate.arguments import Who, asked, parser
from launch.evaluate.attempts import AttemptId
from launch.evaluate.evaluation import Evaluation, evaluation_of, named, work, write_outputs
from launch.evaluate.folder import EvaluationFolder, check, opened, read_attempts
from launch.evaluate.summary import Summary
from protocol.cli.exits import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.output import JsonOutput, error_console, shown
from protocol.cli.parser import check_text
from protocol.events import Json


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return main_guard(lambda: _main(words))


def _main(words: Sequence[str]) -> int:
    with JsonOutput("--json" in words or "--dry-run" in words) as out:
        check_text(words)
        evaluation = evaluation_of(asked(parser().parse_args(words)))
        folder = evaluation.wanted.folder()
        _check(evaluation)
        if evaluation.wanted.dry_run:
            out.set(_would_run(evaluation))
            return EXIT_OK
        summary = _run(asyncio.run(named(evaluation)))
        out.set(cast("dict[str, Json]", {**asdict(summary), "output": str(folder)}))
        return EXIT_OK if summary.complete and not summary.error_count else EXIT_FAILED


def _check(evaluation: Evaluation) -> None:
    """Before anything is written or started.  Raises UserError."""
    wanted = evaluation.wanted
    check(wanted.folder(), evaluation.what)
    if wanted.who is Who.SERVED and evaluation.left(read_attempts(wanted.folder())):
        from launch.prepare import check_model

        check_model(Path(wanted.model))


def _would_run(evaluation: Evaluation) -> dict[str, Json]:
    folder, chosen = evaluation.wanted.folder(), evaluation.chosen
    return {
        "what": dict(evaluation.what),
        "output": str(folder),
        "tasks": list(chosen.tasks),
        "left_out": list(chosen.left_out),
        "planned": len(evaluation.plan),
        "to_run": len(evaluation.left(read_attempts(folder))),
    }


def _run(evaluation: Evaluation) -> Summary:
    from launch.cluster import interruptible

    console, chosen, plan = error_console(), evaluation.chosen, evaluation.plan
    for line in chosen.left_out:
        console.print(f"left out: {line}")
    with opened(evaluation.wanted.folder(), evaluation.what) as folder:
        to_run = evaluation.left(folder.done)
        console.print(f"{len(plan)} attempts at {len(chosen.tasks)} tasks, {len(to_run)} to run: {shown(folder.path)}")
        try:
            if to_run:
                again = f"the same command: {shlex.join(['python', *sys.orig_argv[1:]])}"
                asyncio.run(interruptible(_work(evaluation, to_run, folder), again))
        finally:
            found = write_outputs(evaluation, folder)
        for k, each in found.pass_at_k.items():
            console.print(f"pass@{k}: {each.value:.1%} ({each.low:.1%} to {each.high:.1%}, {each.tasks} tasks)")
        if found.error_count:
            console.print(f"{found.error_count} attempts have no verdict: the same command with --retry-errors")
        console.print(f"report: {shown(folder.path / 'report.html')}")
        return found


async def _work(evaluation: Evaluation, to_run: Sequence[AttemptId], folder: EvaluationFolder) -> dict[str, Json]:
    await work(evaluation, to_run, folder, error_console())
    return {}


if __name__ == "__main__":
    sys.exit(main())
