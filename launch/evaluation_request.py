"""A person asks a run to evaluate its newest weights now: a file in its directory, which the driver takes away when the
evaluation begins, or when it says why there is none.

Who asks needs no connection to the run; asking twice before that is asking once; a run that is not running answers when
it goes on.
"""

from __future__ import annotations

from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict

from launch.rundir import refused, stored_config, write_json
from protocol.errors import UserError

REQUEST_FILE = "evaluate-now.json"


class EvaluationRequest(BaseModel):
    model_config = ConfigDict(frozen=True)
    reason: str = ""
    """For whoever reads the events."""


def request_evaluation(run_dir: Path, reason: str = "") -> None:
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
        write_json(run_dir / REQUEST_FILE, EvaluationRequest(reason=reason).model_dump())
    except OSError as error:
        raise refused(run_dir, error) from error


def requested_evaluation(run_dir: Path) -> EvaluationRequest | None:
    """What is asked for and not answered; that a file is there asks for it, whatever is in it."""
    try:
        return EvaluationRequest.model_validate(orjson.loads((run_dir / REQUEST_FILE).read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return EvaluationRequest()


def answer_request(run_dir: Path) -> None:
    """It is under way, or will not be."""
    (run_dir / REQUEST_FILE).unlink(missing_ok=True)
