"""``longshore replay TRAJECTORY|RUN``: replay a trajectory in a fresh sandbox, or a run's training.

TRAJECTORY is RUN/ID or EVALUATION/TASK/ATTEMPT: its actions run in a fresh sandbox, their results are compared with the
recorded observations, and the episode is graded again.  The exit code is 0 if every replay gives the recorded verdict
and reward, else 1.

RUN is a run's directory: its recorded steps are trained again, and the weights are compared bit by bit.  The exit code
is 0 if they are equal or ``--set`` changed a setting, else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional

from protocol.cli.arguments import CommandArguments, JsonFlag, Overrides, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError
from protocol.run_directory.layout import NoSuchRunError
from protocol.run_directory.run_arguments import RunFolder

_MAX_TIMES = 10_000
"""Largest number of replays: a larger one is a typing error, and would exhaust the memory before anything runs."""


class ReplayArguments(CommandArguments):
    """Replay a trajectory's actions in a fresh sandbox and grade them, or train a run's recorded steps again.

    Examples: longshore replay demo-1/train-g000007-s03 --times 5; longshore replay demo-1
    """

    subject: Positional[Annotated[RunFolder, option("TRAJECTORY|RUN")]]
    """RUN/ID or EVALUATION/TASK/ATTEMPT, or a run."""
    times: Annotated[int | None, option("N"), Field(ge=1, le=_MAX_TIMES)] = None
    """Number of replays of a trajectory; default: 1."""
    concurrency: Annotated[int | None, option("N"), Field(ge=1)] = None
    """Concurrent replays of a trajectory; default: 1."""
    overrides: Overrides = ()
    as_json: JsonFlag = False


def run(given: ReplayArguments, out: JsonOutput) -> int:
    """Replay, and return 0 if the result is the same."""
    from launch.trajectory_reader.trajectory_lookup import is_trajectory_name

    if is_trajectory_name(str(given.subject)):
        return _trajectory(given, out)
    return _training(given, out)


def _trajectory(given: ReplayArguments, out: JsonOutput) -> int:
    if given.overrides:
        raise UserError("--set only applies to replaying a run: leave it out, a trajectory is replayed as it was made")
    from launch.replay.formatting import build_replay_report, format_replay_lines
    from launch.replay.trajectory_replay import prepare_subject, run_replays
    from launch.trajectory_reader.trajectory_lookup import find_trajectory

    subject = prepare_subject(find_trajectory(str(given.subject)))
    comparison = run_replays(subject, given.times or 1, given.concurrency or 1)
    out.set_result(build_replay_report(subject.found.recorded, comparison, task_changed=subject.task_changed))
    for line in format_replay_lines(subject.found.recorded, comparison, task_changed=subject.task_changed):
        output_console().print(line)
    return EXIT_OK if comparison.all_agree else EXIT_FAILED


def _training(given: ReplayArguments, out: JsonOutput) -> int:
    run_dir = given.subject
    if given.times or given.concurrency:
        raise UserError(
            f"--times and --concurrency only apply to a trajectory, and {run_dir} is not one: write RUN/ID or "
            "EVALUATION/TASK/ATTEMPT, or leave them out to train a run's steps again"
        )
    _require_run(run_dir)
    from launch.replay.training_replay import replay_training

    replay = replay_training(run_dir, given.overrides)
    out.set_result(
        {
            "run": run_dir.name,
            "steps": list(replay.steps),
            "digest": replay.digest,
            "recorded": replay.recorded,
            "equal": replay.equal,
        }
    )
    first, last = replay.steps[0], replay.steps[-1]
    output_console().print(
        f"steps {first} to {last} trained again: the weights are {'equal' if replay.equal else 'different'}"
    )
    return EXIT_OK if replay.equal or given.overrides else EXIT_FAILED


def _require_run(path: Path) -> None:
    """Raise UserError unless the path is a run."""
    from launch.evaluation.results.evaluation_folder import is_evaluation
    from launch.trajectory_reader.trajectory_lookup import find_trajectory
    from protocol.run_directory.layout import is_run_directory

    if is_evaluation(path):
        raise UserError(f"{path} is an evaluation: name one of its attempts, {path}/TASK/0")
    if not is_run_directory(path) and not path.parent.is_dir():
        find_trajectory(str(path))
    if not is_run_directory(path):
        raise NoSuchRunError(path)


COMMAND = Command("replay", ReplayArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
