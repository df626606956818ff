"""Follows a running run and emits ``alert.raised`` and ``alert.resolved`` events.

It reads the run's files and asks the engines for their load.  The run never waits for it; it ends when it is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.alerts.rules import evaluate_rules
from launch.alerts.signals import SignalCollector, first_entropy, read_step_signals
from launch.config import RunConfig
from launch.run_records.metrics_log import read_metrics
from launch.settings.run import NegativeControl
from learner.losses.settings import LossType
from protocol.events import EventLog
from protocol.files.filesystem import free_bytes
from protocol.run_directory.cursors import cursor_at_end
from protocol.run_directory.json_fields import Event
from protocol.run_directory.layout import EVENT_FILES
from protocol.run_directory.run_tail import RunTail

_METRICS = "metrics"
_CHECK_INTERVAL_S = 5.0
_MAX_LINES = 100_000
"""Maximum number of lines that one check reads."""


def silenced_alerts(config: RunConfig) -> frozenset[str]:
    """Return the names of alerts that this configuration would raise by design.

    Colocated learners and engines are idle in turn, REINFORCE has no clipping, and a negative control must not
    learn."""
    idle = {"idle_learner", "idle_engines"} if config.colocated else set[str]()
    unbounded = {"clipped", "unclipped"} if config.learner.loss is LossType.REINFORCE else set[str]()
    still = {"unclipped"} if config.run.negative_control is not NegativeControl.NONE else set[str]()
    return frozenset(idle | unbounded | still)


@dataclass(slots=True, kw_only=True)
class AlertWatch:
    """Checks the rules while a run goes on."""

    run_dir: Path
    events: EventLog
    reserve_bytes: int
    engine_loads: Callable[[], Awaitable[Sequence[int]]]
    """Returns the number of requests on each engine that responds."""
    silenced: Collection[str] = ()
    """Names of alerts that are not raised."""
    listeners: Sequence[Callable[[Event], None]] = ()
    """Called with each new event of the run."""
    now: Callable[[], float] = time.monotonic
    signals: SignalCollector = field(default_factory=SignalCollector)
    """Signals on which the rules are checked."""
    _tail: RunTail = field(init=False)
    _active: dict[str, str] = field(default_factory=dict[str, str])
    """Open alerts by name, with their texts."""

    def __post_init__(self) -> None:
        patterns = (*EVENT_FILES, f"{_METRICS}.jsonl")
        self._tail = RunTail(self.run_dir, patterns, cursor_at_end(self.run_dir, patterns))
        self.signals.entropy_at_first = first_entropy(
            [read_step_signals({**line}) for line in read_metrics(self.run_dir)]
        )

    async def watch(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(_CHECK_INTERVAL_S)

    async def check(self) -> None:
        """Check the rules once, and emit what has changed."""
        for event in await asyncio.to_thread(self._read):
            for listener in self.listeners:
                listener(event)
        self.signals.observe_engines(await self.engine_loads())
        self._emit_changes()

    def _read(self) -> list[Event]:
        """Update the signals, and return the new events."""
        events: list[Event] = []
        for line in self._tail.read(_MAX_LINES):
            if line.value is None:
                continue
            if line.source == _METRICS:
                self.signals.observe_metrics(line.value)
            else:
                self.signals.observe_event(line.value)
                events.append(line.value)
        self.signals.observe_disk(self.now(), free_bytes(self.run_dir), self.reserve_bytes)
        return events

    def _emit_changes(self) -> None:
        found = evaluate_rules(self.signals.collect(), self._active)
        alerts = {alert.name: alert for alert in found if alert.name not in self.silenced}
        for name in [name for name in self._active if name not in alerts]:
            del self._active[name]
            self.events.emit("alert.resolved", name=name)
        for name, alert in alerts.items():
            if name not in self._active:
                self._active[name] = alert.text
                self.events.emit("alert.raised", name=name, text=alert.text, health=alert.health)
