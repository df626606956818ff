"""Sandboxes that have started and wait for a task: which kind, how many, how old.

Two tasks can use the same warm sandbox when everything that is settled at a container's creation is equal: that is its
:class:`Kind`.  The shelf is a plain data structure; the pool starts, checks and ends what is on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox.engine import ContainerLimits
from sandbox.network import NONE
from sandbox.session import SandboxSession
from sandbox.tasks.task import CAPABILITIES


@dataclass(frozen=True, slots=True)
class Kind:
    """What a container cannot change once it exists."""

    image: str
    workdir: str
    limits: ContainerLimits
    env: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    network: str = NONE


class Shelved(NamedTuple):
    kind: Kind
    session: SandboxSession
    since: float


@dataclass(slots=True)
class WarmShelf:
    """``wanted`` sandboxes of each kind that was asked for; the oldest goes first.  Times are the pool's monotonic
    clock's."""

    wanted: int
    max_age_s: float
    forget_s: float
    _kept: list[Shelved] = field(default_factory=list[Shelved])
    _filling: dict[Kind, int] = field(default_factory=dict[Kind, int])
    _asked: dict[Kind, float] = field(default_factory=dict[Kind, float])
    """When each kind was last asked for."""

    def put(self, kind: Kind, session: SandboxSession, now: float) -> None:
        self._kept.append(Shelved(kind, session, now))

    def take(self, kind: Kind) -> SandboxSession | None:
        """The oldest of this kind."""
        for each in self._kept:
            if each.kind == kind:
                self._kept.remove(each)
                return each.session
        return None

    def spare(self) -> SandboxSession | None:
        """The oldest of any kind: its place is needed."""
        return self._kept.pop(0).session if self._kept else None

    def asked(self, kind: Kind, now: float) -> None:
        """Somebody wants sandboxes of this kind ready."""
        self._asked[kind] = now

    def unfit(self, now: float) -> list[Shelved]:
        """Those that have died or become too old; they leave the shelf."""
        gone = [each for each in self._kept if not each.session.alive or now - each.since > self.max_age_s]
        self._kept = [each for each in self._kept if each not in gone]
        return gone

    def is_wanted(self, kind: Kind, now: float) -> bool:
        """Whether one of this kind that is gone is to be replaced: it was asked for within ``forget_s``."""
        self._asked = {each: at for each, at in self._asked.items() if now - at <= self.forget_s}
        return kind in self._asked

    def missing(self, kind: Kind, wanted: int | None = None) -> int:
        """How many starts would fill the shelf for this kind, those under way counted as done."""
        there = sum(each.kind == kind for each in self._kept) + self._filling.get(kind, 0)
        return max(0, (self.wanted if wanted is None else wanted) - there)

    def filling(self, kind: Kind, change: int) -> None:
        """A start for this kind has begun (+1) or ended (-1)."""
        left = self._filling.get(kind, 0) + change
        if left:
            self._filling[kind] = left
        else:
            self._filling.pop(kind, None)

    def __iter__(self) -> Iterator[SandboxSession]:
        return iter([each.session for each in self._kept])

    def __len__(self) -> int:
        return len(self._kept)
