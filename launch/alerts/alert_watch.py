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

from launch.alerts.rules import evaluate_rules
from launch.alerts.signals import SignalCollector, first_entropy, read_step_signals
from launch.config import NegativeControl, RunConfig
from launch.run_records.metrics_log import read_metrics
from learner.losses.settings import LossType
from protocol.events import EventLog
from protocol.files.filesystem import free_bytes
from protocol.run_directory.cursors import cursor_at_end
from protocol.run_directory.json_fields import Event
from protocol.run_directory.run_tail import RunTail

_EVENTS, _METRICS = "events/*.jsonl", "metrics"
_LOOK_S = 5.0
_MOST_LINES = 100_000
"""In one look."""


def silenced_alerts(config: RunConfig) -> frozenset[str]:
    """What is so by design: idleness where learner and engines take turns, clips that a loss has not, a policy that
    is not to move."""
    idle = {"idle_learner", "idle_engines"} if config.colocated else set[str]()
    unbounded = {"clipped", "unclipped"} if config.learner.loss is LossType.REINFORCE else set[str]()
    still = {"unclipped"} if config.run.negative_control is not NegativeControl.NONE else set[str]()
    return frozenset(idle | unbounded | still)


@dataclass(slots=True, kw_only=True)
class AlertWatch:
    run_dir: Path
    events: EventLog
    reserve_bytes: int
    engine_loads: Callable[[], Awaitable[Sequence[int]]]
    """Requests that each engine has; of those that answer at once."""
    silenced: Collection[str] = ()
    """What nothing is to be said about: it is so by design."""
    listeners: Sequence[Callable[[Event], None]] = ()
    """Who else is to hear each event."""
    now: Callable[[], float] = time.monotonic
    _signals: SignalCollector = field(default_factory=SignalCollector)
    _reader: RunTail = field(init=False)
    _active: dict[str, str] = field(default_factory=dict[str, str])
    """What holds, and what was said of it."""

    def __post_init__(self) -> None:
        patterns = (_EVENTS, f"{_METRICS}.jsonl")
        self._reader = RunTail(self.run_dir, patterns, cursor_at_end(self.run_dir, patterns))
        self._signals.entropy_at_first = first_entropy(
            [read_step_signals({**line}) for line in read_metrics(self.run_dir)]
        )

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(_LOOK_S)

    async def check(self) -> None:
        """Once."""
        for event in await asyncio.to_thread(self._read):
            for listener in self.listeners:
                listener(event)
        self._signals.observe_engines(await self.engine_loads())
        self._emit_changes()

    def _read(self) -> list[Event]:
        """What is new, of events."""
        heard: list[Event] = []
        for line in self._reader.read(_MOST_LINES):
            if line.value is None:
                continue
            if line.source == _METRICS:
                self._signals.observe_metrics(line.value)
            else:
                self._signals.observe_event(line.value)
                heard.append(line.value)
        self._signals.observe_disk(self.now(), free_bytes(self.run_dir), self.reserve_bytes)
        return heard

    def _emit_changes(self) -> None:
        holding = {
            each.name: each
            for each in evaluate_rules(self._signals.collect(), self._active)
            if each.name not in self.silenced
        }
        for about in [about for about in self._active if about not in holding]:
            del self._active[about]
            self.events.emit("alert.resolved", name=about)
        for about, each in holding.items():
            if about not in self._active:
                self._active[about] = each.text
                self.events.emit("alert.raised", name=about, text=each.text, health=each.health)
