"""Control requests to a run: one small file each in its directory, which the driver removes once it has answered.

Files are written atomically, and their names sort by time.  The answer is an event of the driver, so that the run's
events record who requested what, why, and with which result.
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

from launch.run_records.run_directory import write_json
from launch.run_records.run_lock import directory_error
from protocol.errors import UserError

REQUESTS_FOLDER = "requests"
REQUEST_TAKEN_EVENT, REQUEST_ANSWERED_EVENT = "control_request.accepted", "control_request.answered"
"""Events: the run has accepted a request; the request is done or refused."""


class ControlAction(StrEnum):
    """Actions that a person can request of a run."""

    PAUSE = "pause"
    """No rollout begins, and the learner waits before its next step."""
    RESUME = "resume"
    DRAIN = "drain"
    """No group opens; open groups end and are trained, then the run ends.  With a target: drain one engine."""
    RETUNE = "retune"
    CANCEL = "cancel"
    CHECKPOINT = "checkpoint-now"
    EVALUATE = "evaluate-now"
    STOP = "stop"
    """Training ends after the current step; the run ends as after its last step."""


class ControlRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    action: ControlAction
    t: float
    by: str
    reason: str = ""
    changes: dict[str, str] = Field(default_factory=dict[str, str])
    """Key → new value as typed, for ``retune``."""
    target: str = ""
    """Group or trajectory for ``cancel``; engine for ``drain``, or empty for the whole run."""

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
    """Write a request to the run's directory.  Raises RunDirectoryError."""
    try:
        (run_dir / REQUESTS_FOLDER).mkdir(exist_ok=True)
        write_json(run_dir / REQUESTS_FOLDER / request.file, request.model_dump(mode="json"))
    except OSError as error:
        raise directory_error(run_dir, error) from error


def withdraw_request(run_dir: Path, request: ControlRequest) -> bool:
    """Withdraw a request; return false if the run has answered it."""
    try:
        (run_dir / REQUESTS_FOLDER / request.file).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise directory_error(run_dir, error) from error
    return True


def list_request_files(run_dir: Path) -> list[Path]:
    """Return the files of open requests, oldest first."""
    return sorted((run_dir / REQUESTS_FOLDER).glob("[0-9]*.json"))


def read_request(path: Path) -> ControlRequest:
    """Read a request.  Raises UserError for another file."""
    try:
        return ControlRequest.model_validate(orjson.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} is not a request ({error}): use longshore ctl") from error


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return ""
