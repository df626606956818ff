"""Settings and statistics of a sandbox pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import UserError
from protocol.settings import Seconds
from sandbox.agent_programs import AgentPrograms
from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.images.registry_hosts import RegistryEntry

COMMAND_TIMEOUT_S = 20.0
"""Maximum seconds of an agent's blocking command, as in SETA and OpenClaw."""
START_CONCURRENCY = 4
"""Containers that start at once in the beginning."""


SERVICE_LIFETIME_S = 7200.0
"""Maximum seconds that a container of a service or a proof lives, where nobody knows the deadlines of its users."""


class ContainerSettings(EgressProxySettings):
    """Limits and image of a pool's containers."""

    image: str = ""
    """Image of tasks that name none; empty for the base image that ``make setup`` builds."""
    allow_registries: tuple[RegistryEntry, ...] = ()
    """Registries from which images are pulled although their addresses are not public: ``registry.corp``,
    ``registry.corp:5000``, ``*.corp``. Those of ``docker login`` and of the engine's configuration need not be named.
    Sandboxes cannot reach them by that."""
    start_timeout_s: Seconds = 60.0
    """Maximum seconds for the start of one container."""
    heartbeat_timeout_s: Seconds = 120.0
    """Seconds without a heartbeat of its owner after which a container ends itself."""
    max_lifetime_s: Seconds = 1200.0
    """Maximum seconds that a container lives, even with a heartbeat."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Settings of one pool. Raises UserError for values with which a pool would wait forever."""

    name: str
    """Name of the pool; a clean-up only removes what carries it."""
    run_id: str
    capacity: int
    """Maximum sandboxes alive at once, warm ones included."""
    start_concurrency: int = START_CONCURRENCY
    """Maximum containers that start at once in the beginning, about the number of cores. Measured start times then move
    it between ``start_concurrency_min`` and ``start_concurrency_max``."""
    start_concurrency_min: int = 1
    start_concurrency_max: int = 32
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    agent_programs: AgentPrograms | None = None
    """Programs that are mounted into every sandbox."""
    setup_timeout_s: float = 120.0
    """Maximum seconds for a task's setup script."""
    drain_s: float = 60.0
    """Seconds that closing the pool waits for the daemon to remove ended containers."""
    warm_per_kind: int = 0
    """Number of warm sandboxes of each kind that tasks have used."""
    warm_max_age_s: float = 600.0
    """Seconds after which a warm sandbox is ended and replaced."""
    warm_demand_window_s: float = 7200.0
    """Seconds after which a kind that no task has used gets no more warm sandboxes."""
    disk_loop: bool = False
    """Give each sandbox a file system of its own (an ext4 image in a sparse file) where the daemon has no quota. This
    needs root on the daemon's host, works in the daemon's folder, and takes some 20 ms a start."""
    owner: str = ""
    """Owner in the containers' labels; empty for this process: once it has died, its containers are swept."""

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.start_concurrency < 1:
            raise UserError("a pool without room for a sandbox, or for a start, would wait forever: allow at least 1")


class PoolStatistics(NamedTuple):
    """Counts of a pool at one moment."""

    capacity: int
    live: int
    """Number of sandboxes handed out."""
    starting: int
    """Number of containers being started."""
    waiting: int
    """Number of requests that wait for a slot or for their start."""
    started: int
    closed: int
    failed_starts: int
    swept: int
    """Number of unused resources that were removed."""
    start_ms_mean: float
    warm: int
    """Number of warm sandboxes."""
    warm_hits: int
    """Number of sandboxes that were handed out without a start."""
    start_limit: int
    """Number of containers that may start at once, as measured."""
