"""The buffer's settings, ``[buffer]``, and what only a run knows.

Light: the configuration imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from protocol.settings import ConfigSection, PositiveInt

if TYPE_CHECKING:
    from protocol.stream import CurveServer
    from protocol.usability import TrajectoryLimits


class BufferSettings(ConfigSection):
    budget_bytes: PositiveInt = 1 << 30
    """Maximum bytes of trajectories that are reserved, held, or trained and not yet in a checkpoint.  At least twice
    the largest batch (groups per step × group size × ``max_trajectory_bytes``)."""
    max_trajectory_bytes: PositiveInt = 256 * 1024
    """Maximum bytes of one trajectory, reserved for each rollout request."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port that trajectories are sent to; 0 for a free one.  Not used by a run that starts its own nodes: there they
    are sent through a Unix socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSpec:
    """Everything that the buffer of one run is configured with."""

    settings: BufferSettings
    """The configured limits; with port 0 the buffer binds a free port and keeps it when it restarts."""
    run_id: str
    run_dir: Path
    """The run's directory, on a local disk of the buffer's host."""
    node: str
    host: str
    """Address that the receiver binds to, unless it has a Unix socket."""
    unix_socket: Path | None
    """Socket that the receiver listens on if all workers are on its machine, in a folder that only its owner can
    enter."""
    curve: CurveServer | None
    """Keys of the receiver and of its senders; required without a Unix socket."""
    limits: TrajectoryLimits
    """The most that the run's model and learner can hold."""
    disk_floor_bytes: int
    """Free disk space below which no new group is opened."""
    dynamic_sampling: bool
    """Groups without reward variance are dropped, and others take their place."""
