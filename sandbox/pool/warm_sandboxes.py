"""Sandboxes that have started and wait for a task: which kind, how many, how old.

Two tasks can use the same warm sandbox when everything that is fixed at a container's creation is equal: its
:class:`ContainerKind`. This is a plain data structure; the pool starts, checks and ends the sandboxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.docker.container_spec import ContainerLimits
from sandbox.networking.networks import NO_NETWORK
from sandbox.session.sandbox_session import SandboxSession


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """What cannot change once a container exists."""

    image: str
    workdir: str
    limits: ContainerLimits
    env: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = BASE_CAPABILITIES
    network: str = NO_NETWORK


class WarmSandbox(NamedTuple):
    """A warm sandbox, and since when it waits."""

    kind: ContainerKind
    session: SandboxSession
    since: float


@dataclass(slots=True)
class WarmSandboxes:
    """``wanted`` sandboxes of each kind that was asked for; the oldest goes first. Times are of the pool's monotonic
    clock."""

    wanted: int
    max_age_s: float
    forget_s: float
    _kept: list[WarmSandbox] = field(default_factory=list[WarmSandbox])
    _filling: dict[ContainerKind, int] = field(default_factory=dict[ContainerKind, int])
    _asked: dict[ContainerKind, float] = field(default_factory=dict[ContainerKind, float])
    """When each kind was last asked for."""

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
        """Remove and return the oldest of any kind, whose slot is needed."""
        return self._kept.pop(0).session if self._kept else None

    def record_demand(self, kind: ContainerKind, now: float) -> None:
        """Record that a task asked for this kind."""
        self._asked[kind] = now

    def pop_unfit(self, now: float) -> list[WarmSandbox]:
        """Remove and return those that have died or become too old."""
        gone = [each for each in self._kept if not each.session.alive or now - each.since > self.max_age_s]
        self._kept = [each for each in self._kept if each not in gone]
        return gone

    def is_wanted(self, kind: ContainerKind, now: float) -> bool:
        """Whether a lost sandbox of this kind is to be replaced: it was asked for within ``forget_s``."""
        self._asked = {each: at for each, at in self._asked.items() if now - at <= self.forget_s}
        return kind in self._asked

    def count_missing(self, kind: ContainerKind, wanted: int | None = None) -> int:
        """Count the starts that are needed for this kind; starts under way count as done."""
        there = sum(each.kind == kind for each in self._kept) + self._filling.get(kind, 0)
        return max(0, (self.wanted if wanted is None else wanted) - there)

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
