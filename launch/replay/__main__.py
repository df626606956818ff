"""``python -m launch.replay TRAJECTORY|RUN``: run a trajectory's actions again, or train a run's steps again.

TRAJECTORY is RUN/ID or EVALUATION/TASK/ATTEMPT: its actions are run in a fresh sandbox, what they lead to is held
against what was observed, and it is graded again.  Exit code 0: the same verdict and reward each time; 1: not.

RUN is a run's directory: its recorded steps are trained again, and the weights compared bit by bit.  Exit code 0: they
are equal, or ``--set`` changed what they depend on; 1: not.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional

from launch.config.command_line import RunFolder
from launch.run_records.run_directory import NoSuchRunError
from protocol.cli.arguments import CommandArguments, JsonFlag, Overrides, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError

_MOST_TIMES = 10_000
"""More is a slip, and would take the memory before anything is run."""


class ReplayArguments(CommandArguments):
    """Run a trajectory's actions again in a fresh sandbox and grade them, or train a run's steps again.

    Examples: longshore replay demo-1/train-g000007-s03 --times 5; longshore replay demo-1
    """

    subject: Positional[Annotated[RunFolder, option("TRAJECTORY|RUN")]]
    """RUN/ID or EVALUATION/TASK/ATTEMPT, or a run."""
    times: Annotated[int | None, option("N"), Field(ge=1, le=_MOST_TIMES)] = None
    """Of a trajectory: how often to replay it; default: once."""
    concurrency: Annotated[int | None, option("N"), Field(ge=1)] = None
    """Of a trajectory: replays at once; default: 1."""
    overrides: Overrides = ()
    as_json: JsonFlag = False


def run(given: ReplayArguments, out: JsonOutput) -> int:
    """Replay, and return 0 where the result is the same."""
    from launch.trajectory_reader.lookup import is_trajectory_name

    if is_trajectory_name(str(given.subject)):
        return _trajectory(given, out)
    return _training(given, out)


def _trajectory(given: ReplayArguments, out: JsonOutput) -> int:
    if given.overrides:
        raise UserError("--set is for training a run again: a trajectory is replayed as it was made, leave --set out")
    from launch.replay.formatting import build_replay_report, format_replay_lines
    from launch.replay.trajectory_replay import prepare_subject, run_replays
    from launch.trajectory_reader.lookup import find_trajectory

    asked = prepare_subject(find_trajectory(str(given.subject)))
    judged = run_replays(asked, given.times or 1, given.concurrency or 1)
    out.set_result(build_replay_report(asked.found.recorded, judged, task_changed=asked.task_changed))
    for line in format_replay_lines(asked.found.recorded, judged, task_changed=asked.task_changed):
        output_console().print(line)
    return EXIT_OK if judged.all_agree else EXIT_FAILED


def _training(given: ReplayArguments, out: JsonOutput) -> int:
    run_dir = given.subject
    if given.times or given.concurrency:
        raise UserError(
            f"--times and --concurrency are for a trajectory, and {run_dir} names none: write RUN/ID or "
            "EVALUATION/TASK/ATTEMPT, or leave them out to train a run's steps again"
        )
    _require_run(run_dir)
    from launch.replay.training_replay import replay_training

    done = replay_training(run_dir, given.overrides)
    out.set_result(
        {
            "run": run_dir.name,
            "steps": list(done.steps),
            "digest": done.digest,
            "recorded": done.recorded,
            "equal": done.equal,
        }
    )
    output_console().print(
        f"steps {done.steps[0]} to {done.steps[-1]} again: the weights are {'equal' if done.equal else 'different'}"
    )
    return EXIT_OK if done.equal or given.overrides else EXIT_FAILED


def _require_run(path: Path) -> None:
    """Raise UserError unless the path is a run."""
    from launch.trajectory_reader.evaluation_source import is_evaluation
    from launch.trajectory_reader.lookup import find_trajectory
    from launch.trajectory_reader.run_source import is_run

    if is_evaluation(path):
        raise UserError(f"{path} is a whole evaluation: name one attempt of it, {path}/TASK/0")
    if not is_run(path) and not path.parent.is_dir():
        find_trajectory(str(path))
    if not is_run(path):
        raise NoSuchRunError(path)


COMMAND = Command("launch.replay", ReplayArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
