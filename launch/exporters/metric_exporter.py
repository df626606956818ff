"""The interface of a metric exporter, which sends a run's metrics to a tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from protocol.events import JsonValue


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """What an exporter gets to know of the run."""

    run_id: str
    run_dir: Path
    project: str
    config: Mapping[str, JsonValue]
    """``section.key`` → value."""


class MetricExporter(Protocol):
    """Methods are called in one thread of a separate process and may block; exceptions are counted and logged."""

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one optimizer step.  After a resume a step may come again."""
        ...

    def close(self) -> None:
        """Flush and close; no step follows."""
        ...


ExporterFactory = Callable[[ExporterSettings], MetricExporter]
"""Opens an exporter.  An exception here ends the run before it starts."""
