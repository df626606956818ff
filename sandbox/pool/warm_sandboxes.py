"""The sandboxes that have started and wait for a task, by kind and age.

Two tasks can use the same warm sandbox if everything that is fixed at a container's creation is equal: its
:class:`ContainerKind`. This is a plain data structure; the pool starts, checks and ends the sandboxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.docker.container_spec import HOSTNAME, ContainerLimits, ImageConfig, VolumeMount
from sandbox.networking.networks import NO_NETWORK
from sandbox.process_limits import ProcessLimit
from sandbox.session.login_shell import NOTHING_SET, LoginVariables
from sandbox.session.sandbox_session import SandboxSession


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """Properties that cannot change once a container exists."""

    image: str
    workdir: str
    limits: ContainerLimits
    env: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = BASE_CAPABILITIES
    network: str = NO_NETWORK
    tmpfs: tuple[str, ...] = ()
    image_config: ImageConfig = field(default_factory=ImageConfig)
    read_only: tuple[str, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    agent_programs: str = ""
    """Folder in longshore's home that is mounted for the agent; empty for none."""
    hostname: str = HOSTNAME
    ulimits: tuple[ProcessLimit, ...] = ()
    aliases: tuple[str, ...] = ()
    login: LoginVariables = NOTHING_SET


class WarmSandbox(NamedTuple):
    """A warm sandbox, and the time since which it has been waiting."""

    kind: ContainerKind
    session: SandboxSession
    since: float


@dataclass(slots=True)
class WarmSandboxes:
    """``wanted`` sandboxes of each kind in demand; the oldest is used first. Times are of the pool's monotonic
    clock."""

    wanted: int
    max_age_s: float
    forget_s: float
    _kept: list[WarmSandbox] = field(default_factory=list[WarmSandbox])
    _filling: dict[ContainerKind, int] = field(default_factory=dict[ContainerKind, int])
    _requested_at: dict[ContainerKind, float] = field(default_factory=dict[ContainerKind, float])
    """Time of the last request for each kind."""

    def add(self, kind: ContainerKind, session: SandboxSession, now: float) -> None:
        """Add a sandbox."""
        self._kept.append(WarmSandbox(kind, session, now))

    def pop_of_kind(self, kind: ContainerKind) -> SandboxSession | None:
        """Remove and return the oldest of this kind."""
        for each in self._kept:
            if each.kind == kind:
                self._kept.remove(each)
                return each.session
        return None

    def pop_oldest(self) -> SandboxSession | None:
        """Remove and return the oldest sandbox of any kind, to free its slot."""
        return self._kept.pop(0).session if self._kept else None

    def record_demand(self, kind: ContainerKind, now: float) -> None:
        """Record that a task requested this kind."""
        self._requested_at[kind] = now

    def pop_unfit(self, now: float) -> list[WarmSandbox]:
        """Remove and return the sandboxes that have died or become too old."""
        unfit = [each for each in self._kept if not each.session.alive or now - each.since > self.max_age_s]
        self._kept = [each for each in self._kept if each not in unfit]
        return unfit

    def is_wanted(self, kind: ContainerKind, now: float) -> bool:
        """Return whether a lost sandbox of this kind is to be replaced: it was requested within ``forget_s``."""
        self._requested_at = {each: at for each, at in self._requested_at.items() if now - at <= self.forget_s}
        return kind in self._requested_at

    def count_missing(self, kind: ContainerKind, wanted: int | None = None) -> int:
        """Count the starts that are needed for this kind; starts in progress count as done."""
        existing = sum(each.kind == kind for each in self._kept) + self._filling.get(kind, 0)
        return max(0, (self.wanted if wanted is None else wanted) - existing)

    def count_start(self, kind: ContainerKind, change: int) -> None:
        """Record that a start for this kind has begun (+1) or ended (-1)."""
        left = self._filling.get(kind, 0) + change
        if left:
            self._filling[kind] = left
        else:
            self._filling.pop(kind, None)

    def __iter__(self) -> Iterator[SandboxSession]:
        return iter([each.session for each in self._kept])

    def __len__(self) -> int:
        return len(self._kept)
