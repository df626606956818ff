"""A person asks a run to evaluate its newest weights now: a file in its directory, which the driver takes away when the
evaluation begins, or when it says why there is none.

Who asks needs no connection to the run; asking twice before that is asking once; a run that is not running answers when
it goes on.
"""

from __future__ import annotations

from pathlib import Path

from launch.rundir import refused, stored_config, write_json
from protocol.errors import UserError

REQUEST_FILE = "evaluate-now.json"


def request_evaluation(run_dir: Path) -> None:
    """Ask.  Raises UserError where the run could not do it whatever happens."""
    config = stored_config(run_dir)
    if not config.evaluation.tasks_per_family:
        raise UserError(
            "the run holds out no tasks (evaluation.tasks_per_family = 0), so there is nothing to evaluate on: take "
            f"others, with python -m launch.evaluate RECIPE --model {run_dir}/weights/v… --tasks …"
        )
    if not config.exam_places:
        raise UserError(
            f"sandbox.capacity_per_node = {config.sandbox.capacity_per_node} leaves no sandbox beside training's: stop "
            f"the run and go on with --resume {run_dir.name} --set sandbox.capacity_per_node="
            f"{config.sandbox.capacity_per_node + config.evaluation.in_flight}"
        )
    try:
        write_json(run_dir / REQUEST_FILE, {})
    except OSError as error:
        raise refused(run_dir, error) from error


def evaluation_requested(run_dir: Path) -> bool:
    return (run_dir / REQUEST_FILE).exists()


def answer_request(run_dir: Path) -> None:
    """It is under way, or will not be."""
    (run_dir / REQUEST_FILE).unlink(missing_ok=True)
