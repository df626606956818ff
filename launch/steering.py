"""What a person asks of a run that goes on: one small file in its directory, followed by the driver.

The file is the whole of it: whoever writes it needs no connection to the run, a restarted conductor or driver reads the
same, and asking twice changes nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field

from actors.admission import SLACK_STEPS, Flow, Tuning
from actors.remote import RemoteError
from launch.rundir import refused, write_json
from launch.standing import Stand
from protocol.errors import UserError
from protocol.events import EventLog

STEERING_FILE = "steering.json"
_LOOK_S = 1.0


class Steering(BaseModel):
    """What is asked; None where the run's own settings hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    flow: Flow = Flow.RUN
    in_flight: int | None = Field(default=None, ge=1)
    """Training episodes at once over all workers."""
    lead: float | None = Field(default=None, ge=0)
    """Most steps that rollout runs ahead; at most η, whatever is asked for."""
    slack: float | None = Field(default=None, ge=0)
    """Steps' worth of groups that may be ready beyond those that run."""

    def tuning(self, in_flight: int) -> Tuning | None:
        """``in_flight`` is the run's own bound."""
        if self.in_flight is None and self.lead is None and self.slack is None:
            return None
        return Tuning(self.in_flight or in_flight, self.lead, SLACK_STEPS if self.slack is None else self.slack)


def read_steering(run_dir: Path) -> Steering:
    """What is asked of the run; nothing where there is no file.  Raises UserError for one that cannot be read."""
    path = run_dir / STEERING_FILE
    try:
        return Steering.model_validate(orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return Steering()
    except OSError as error:
        raise refused(run_dir, error) from error
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({error}): remove it (rm {path}), and steer again") from error


def write_steering(run_dir: Path, asked: Steering) -> None:
    """Raises RunDirectoryError."""
    try:
        write_json(run_dir / STEERING_FILE, asked.model_dump(mode="json"))
    except OSError as error:
        raise refused(run_dir, error) from error


async def follow_steering(run_dir: Path, stand: Stand, in_flight: int, events: EventLog) -> None:
    """Tell the conductor what is asked, until cancelled.  A file that cannot be read changes nothing, and is named."""
    said = ""
    while True:
        try:
            asked = read_steering(run_dir)
            await stand.steered(asked.flow, asked.tuning(in_flight))
            said = ""
        except UserError as error:
            if said != str(error):
                said = str(error)
                events.emit("steering.refused", reason=said)
        except RemoteError:
            pass  # the conductor is being restarted: the next time
        await asyncio.sleep(_LOOK_S)
