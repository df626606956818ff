"""What a pool of sandboxes is told, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import UserError
from sandbox.egress_proxy.settings import EgressProxySettings


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Raises UserError for what no pool can be."""

    pool: str
    """Name of this pool: a sweep never looks beyond it."""
    run_id: str
    capacity: int
    """Sessions alive at once, warm ones included."""
    start_concurrency: int = 2
    """Containers starting at once to begin with: about the number of cores.  What starts cost moves it, between these
    two:"""
    start_concurrency_min: int = 1
    start_concurrency_max: int = 32
    unattended_s: float = 60.0
    """A container ends after this long without a heartbeat."""
    session_max_s: float = 3600.0
    """A session ends after this long, whatever happens."""
    start_timeout_s: float = 60.0
    """Longest start of one container."""
    setup_timeout_s: float = 120.0
    """Longest run of a task's setup script."""
    image: str = ""
    """Image of tasks that name none; empty for the host's base image."""
    drain_s: float = 60.0
    """How long leaving the pool waits for the daemon to remove what has ended."""
    warm: int = 0
    """Sandboxes kept ready of each kind that has been asked for."""
    warm_max_age_s: float = 600.0
    """A warm sandbox that nobody took by then is ended, and another takes its place."""
    warm_forget_s: float = 7200.0
    """That ends for a kind that no task has asked for in this time."""
    disk_loop: bool = False
    """Where the daemon has no quota, each sandbox writes to a file system of its own, an ext4 in a sparse file: root's
    work on the daemon's own host, in the daemon's folder, some 20 ms a start."""
    egress_proxy: EgressProxySettings = field(default_factory=EgressProxySettings)
    """The proxy of tasks with network ``proxy``."""
    owner: str = ""
    """Whose the containers are, as their label says; empty for this process: when it has died, they are swept."""

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.start_concurrency < 1:
            raise UserError("a pool without room for a sandbox, or for a start, waits for ever: give it at least 1")
        if not self.unattended_s > 0:
            raise UserError(f"sandboxes that live for {self.unattended_s:g} s without a heartbeat do not live")


class PoolStatistics(NamedTuple):
    capacity: int
    live: int
    starting: int
    waiting: int
    started: int
    closed: int
    failed_starts: int
    swept: int
    start_ms_mean: float
    warm: int
    warm_hits: int
    """Sessions that were handed out without a start."""
    start_limit: int
    """Starts allowed at once, as measured."""
