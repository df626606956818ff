"""The settings of a sandbox pool, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import UserError
from protocol.settings import Seconds
from sandbox.egress_proxy.settings import EgressProxySettings


class ContainerSettings(EgressProxySettings):
    """How a pool's containers are made and how long they live."""

    image: str = ""
    """Image of tasks that name none; empty for the base image that ``make setup`` leaves."""
    start_timeout_s: Seconds = 60.0
    """Longest start of one container."""
    deadline_s: Seconds = 120.0
    """A container ends itself after this long without a heartbeat of its owner."""
    max_s: Seconds = 1200.0
    """Longest life of a container, whatever its owner says."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of one pool.  Raises UserError for values with which a pool would wait for ever."""

    pool: str
    """Name of this pool; a sweep never looks beyond it."""
    run_id: str
    capacity: int
    """Sandboxes alive at once, warm ones included."""
    start_concurrency: int = 2
    """Containers that start at once in the beginning, about the number of cores.  Measured start times then move it
    between ``start_concurrency_min`` and ``start_concurrency_max``."""
    start_concurrency_min: int = 1
    start_concurrency_max: int = 32
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    setup_timeout_s: float = 120.0
    """Longest run of a task's setup script."""
    drain_s: float = 60.0
    """How long closing the pool waits for the daemon to remove ended containers."""
    warm: int = 0
    """Warm sandboxes of each kind that has been asked for."""
    warm_max_age_s: float = 600.0
    """A warm sandbox of this age is ended and replaced."""
    warm_demand_window_s: float = 7200.0
    """A kind that no task has asked for in this time gets no warm sandboxes any more."""
    disk_loop: bool = False
    """Whether each sandbox writes to a file system of its own (an ext4 image in a sparse file) where the daemon has no
    quota.  This needs root on the daemon's host, works in the daemon's folder, and takes some 20 ms a start."""
    owner: str = ""
    """Owner in the containers' label; empty for this process: once it has died, its containers are swept."""

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.start_concurrency < 1:
            raise UserError("a pool without room for a sandbox, or for a start, waits for ever: give it at least 1")


class PoolStatistics(NamedTuple):
    """Counts of a pool at one moment."""

    capacity: int
    live: int
    """Sandboxes handed out."""
    starting: int
    """Containers being started."""
    waiting: int
    """Requests that wait for a slot or for their start."""
    started: int
    closed: int
    failed_starts: int
    swept: int
    """Left-over resources that were removed."""
    start_ms_mean: float
    warm: int
    """Warm sandboxes."""
    warm_hits: int
    """Sandboxes that were handed out without a start."""
    start_limit: int
    """Containers that may start at once, as measured."""
