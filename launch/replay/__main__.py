"""``python -m launch.replay TRAJECTORY|RUN``: run a trajectory's actions again, or train a run's steps again.

TRAJECTORY is RUN/ID or EVALUATION/TASK/ATTEMPT: its actions are run in a fresh sandbox, what they lead to is held
against what was observed, and it is graded again.  Exit code 0: the same verdict and reward each time; 1: not.

RUN is a run's directory: its recorded steps are trained again, and the weights compared bit by bit.  Exit code 0: they
are equal, or ``--set`` changed what they depend on; 1: not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.run_records.run_directory import NoSuchRunError
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.numbers import integer_between
from protocol.cli.output import JsonOutput, error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError

_MOST_TIMES = 10_000
"""More is a slip, and would take the memory before anything is run."""
_EXAMPLES = (
    "Examples: python -m launch.replay runs/demo-1/train-g000007-s03 --times 5; "
    "python -m launch.replay evaluations/demo-qwen3-tasks/fix-git/0; python -m launch.replay runs/demo-1"
)


def main(argv: Sequence[str] | None = None) -> int:
    with parse_command_line(_parser(), argv) as (given, out):
        from launch.trajectory_reader.lookup import is_trajectory_name

        if is_trajectory_name(given.subject):
            return _trajectory(given, out)
        return _training(given, out)


def _parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.replay",
        description="Run a trajectory's actions again in a fresh sandbox and grade them, or train a run's steps again.",
        epilog=_EXAMPLES,
    )
    add = made.add_argument
    add("subject", metavar="TRAJECTORY|RUN", help="RUN/ID or EVALUATION/TASK/ATTEMPT, or a run's directory")
    add(
        "--times",
        type=integer_between(1, _MOST_TIMES),
        metavar="N",
        help="of a trajectory: replay it so often (default: 1)",
    )
    add("--concurrency", type=integer_between(1), metavar="N", help="of a trajectory: replays at once (default: 1)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="of a run: learner.eps_high=0.2, say")
    add("--json", action="store_true", help="print one JSON object")
    return made


def _trajectory(given: argparse.Namespace, out: JsonOutput) -> int:
    if given.set:
        raise UserError("--set is for training a run again: a trajectory is replayed as it was made, leave --set out")
    from launch.replay.formatting import build_replay_report, format_replay_lines
    from launch.replay.trajectory_replay import prepare_subject, run_replays
    from launch.trajectory_reader.lookup import find_trajectory

    asked = prepare_subject(find_trajectory(given.subject))
    judged = run_replays(asked, given.times or 1, given.concurrency or 1)
    out.set_result(build_replay_report(asked.found.recorded, judged, task_changed=asked.task_changed))
    for line in format_replay_lines(asked.found.recorded, judged, task_changed=asked.task_changed):
        error_console().print(line)
    return EXIT_OK if judged.all_agree else EXIT_FAILED


def _training(given: argparse.Namespace, out: JsonOutput) -> int:
    run_dir = Path(given.subject)
    if given.times or given.concurrency:
        raise UserError(
            f"--times and --concurrency are for a trajectory, and {run_dir} names none: write RUN/ID or "
            "EVALUATION/TASK/ATTEMPT, or leave them out to train a run's steps again"
        )
    _require_run(run_dir)
    from launch.replay.training_replay import replay_training

    done = replay_training(run_dir, given.set)
    out.set_result(
        {
            "run": run_dir.name,
            "steps": list(done.steps),
            "digest": done.digest,
            "recorded": done.recorded,
            "equal": done.equal,
        }
    )
    error_console().print(
        f"steps {done.steps[0]} to {done.steps[-1]} again: the weights are {'equal' if done.equal else 'different'}"
    )
    return EXIT_OK if done.equal or given.set else EXIT_FAILED


def _require_run(path: Path) -> None:
    """Raises UserError."""
    from launch.trajectory_reader.evaluation_source import is_evaluation
    from launch.trajectory_reader.lookup import find_trajectory
    from launch.trajectory_reader.run_source import is_run

    if is_evaluation(path):
        raise UserError(f"{path} is a whole evaluation: name one attempt of it, {path}/TASK/0")
    if not is_run(path) and not path.parent.is_dir():
        find_trajectory(str(path))
    if not is_run(path):
        raise NoSuchRunError(path)


if __name__ == "__main__":
    sys.exit(main_guard(main))
