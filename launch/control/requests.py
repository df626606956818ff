"""A request to a run: one small file in its directory, which the driver takes away when it has answered.

Files are written whole, and their names are in the order of time.  The answer is an event of the driver's, so that the
run's events tell who asked for what, why, and what became of it.
"""

from __future__ import annotations

import getpass
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field

from launch.run_records.run_directory import directory_error, write_json
from protocol.errors import UserError

REQUESTS_FOLDER = "requests"
REQUEST_TAKEN_EVENT, REQUEST_ANSWERED_EVENT = "control_request.accepted", "control_request.answered"
"""Events: the run has seen it; it is done, or refused."""


class ControlAction(StrEnum):
    """What can be asked of a run."""

    PAUSE = "pause"
    """No rollout begins, and the learner waits before its next step."""
    RESUME = "resume"
    DRAIN = "drain"
    """No group opens; what is under way ends and is trained, then the run ends.  With a target: one engine."""
    RETUNE = "retune"
    CANCEL = "cancel"
    CHECKPOINT = "checkpoint-now"
    EVALUATE = "evaluate-now"
    STOP = "stop"
    """Training ends after the step that is being taken; the run ends as it does after its last."""


class ControlRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    action: ControlAction
    t: float
    by: str
    reason: str = ""
    changes: dict[str, str] = Field(default_factory=dict[str, str])
    """For ``retune``: key → what was typed for it."""
    target: str = ""
    """For ``cancel``: a group or a trajectory; for ``drain``: an engine, or empty for all of the run."""

    @property
    def file(self) -> str:
        return f"{self.id}.json"


def make_request(
    action: ControlAction, *, reason: str = "", changes: Mapping[str, str] | None = None, target: str = ""
) -> ControlRequest:
    name = f"{time.time_ns():020d}-{secrets.token_hex(3)}"
    return ControlRequest(
        id=name,
        action=action,
        t=time.time(),
        by=_current_user(),
        reason=reason,
        changes=dict(changes or {}),
        target=target,
    )


def submit_request(run_dir: Path, request: ControlRequest) -> None:
    """Raises RunDirectoryError where nothing can be written there."""
    try:
        (run_dir / REQUESTS_FOLDER).mkdir(exist_ok=True)
        write_json(run_dir / REQUESTS_FOLDER / request.file, request.model_dump(mode="json"))
    except OSError as error:
        raise directory_error(run_dir, error) from error


def withdraw_request(run_dir: Path, request: ControlRequest) -> bool:
    """Take a request back; false where the run has answered it."""
    try:
        (run_dir / REQUESTS_FOLDER / request.file).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise directory_error(run_dir, error) from error
    return True


def list_request_files(run_dir: Path) -> list[Path]:
    """The oldest first."""
    return sorted((run_dir / REQUESTS_FOLDER).glob("[0-9]*.json"))


def read_request(path: Path) -> ControlRequest:
    """Raises UserError for a file that is none."""
    try:
        return ControlRequest.model_validate(orjson.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} is no request ({error}): ask by python -m launch.ctl") from error


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return ""
