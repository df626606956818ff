"""Follows a run beside it, and tells what is worth a word once, and once more when it is over.

It reads what the run has written, asks the engines how much they have to do, and waits for nobody; it ends when it is
cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.advisories.rules import advise
from launch.advisories.signs import Signs, first_entropy, step_of
from launch.config import Control, RunConfig
from launch.metrics import read_metrics
from launch.monitor.tail import Event, RunReader, ends
from learner.objective import Loss
from protocol.events import EventLog
from protocol.filesystem import free_bytes

_EVENTS, _METRICS = "events/*.jsonl", "metrics"
_LOOK_S = 5.0
_MOST_LINES = 100_000
"""In one look."""


def silent_for(config: RunConfig) -> frozenset[str]:
    """What is so by design: idleness where learner and engines take turns, clips that a loss has not, a policy that
    is not to move."""
    idle = {"idle_learner", "idle_engines"} if config.shared else set[str]()
    unbounded = {"clipped", "unclipped"} if config.learner.loss is Loss.REINFORCE else set[str]()
    still = {"unclipped"} if config.run.control is not Control.NONE else set[str]()
    return frozenset(idle | unbounded | still)


@dataclass(slots=True, kw_only=True)
class AdvisoryWatch:
    run_dir: Path
    events: EventLog
    reserve_bytes: int
    loads: Callable[[], Awaitable[Sequence[int]]]
    """Requests that each engine has; of those that answer at once."""
    silent: Collection[str] = ()
    """What nothing is to be said about: it is so by design."""
    listeners: Sequence[Callable[[Event], None]] = ()
    """Who else is to hear each event."""
    now: Callable[[], float] = time.monotonic
    _signs: Signs = field(default_factory=Signs)
    _reader: RunReader = field(init=False)
    _told: dict[str, str] = field(default_factory=dict[str, str])
    """What holds, and what was said of it."""

    def __post_init__(self) -> None:
        patterns = (_EVENTS, f"{_METRICS}.jsonl")
        self._reader = RunReader(self.run_dir, patterns, ends(self.run_dir, patterns))
        self._signs.entropy_at_first = first_entropy([step_of({**line}) for line in read_metrics(self.run_dir)])

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Once."""
        for event in await asyncio.to_thread(self._read):
            for listener in self.listeners:
                listener(event)
        self._signs.looked_at_engines(await self.loads())
        self._tell()

    def _read(self) -> list[Event]:
        """What is new, of events."""
        heard: list[Event] = []
        for line in self._reader.read(_MOST_LINES):
            if line.value is None:
                continue
            if line.source == _METRICS:
                self._signs.take_metrics(line.value)
            else:
                self._signs.take(line.value)
                heard.append(line.value)
        self._signs.looked_at_disk(self.now(), free_bytes(self.run_dir), self.reserve_bytes)
        return heard

    def _tell(self) -> None:
        holding = {
            each.about: each for each in advise(self._signs.facts(), self._told) if each.about not in self.silent
        }
        for about in [about for about in self._told if about not in holding]:
            del self._told[about]
            self.events.emit("advisory.over", about=about)
        for about, each in holding.items():
            if about not in self._told:
                self._told[about] = each.text
                self.events.emit("advisory", about=about, text=each.text, health=each.health)
