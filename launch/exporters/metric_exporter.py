"""Who takes a run's figures: what one is, those that come with longshore, and those that packages add."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from launch.config.metrics import BUILTIN_SINKS
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.plugins import PluginGroup, load_plugin


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """What a sink is told of the run."""

    run_id: str
    run_dir: Path
    project: str
    config: Mapping[str, JsonValue]
    """``section.key`` → value."""


class MetricExporter(Protocol):
    """Its methods are called in one thread of a process of its own, and may block; what they raise is counted."""

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Figures of one optimizer step.  A step may come again, after a resume that took it anew."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


ExporterFactory = Callable[[ExporterSettings], MetricExporter]
"""Opens it.  Whatever it raises ends the run before it begins."""


def check_exporters(names: Iterable[str]) -> None:
    """The packages that these need are installed.  Raises UserError."""
    for name in names:
        if name not in BUILTIN_SINKS:
            load_plugin(PluginGroup.METRIC_SINKS, name)
        elif importlib.util.find_spec(name) is None:
            raise UserError(
                f"metrics.sinks names '{name}', and {sys.executable} does not have that package: {sys.executable} -m "
                f"pip install 'longshore[{name}]', or leave it out"
            )


def open_exporter(name: str, settings: ExporterSettings) -> MetricExporter:
    """Raises UserError with its own words where it cannot be opened."""
    check_exporters([name])
    try:
        return _maker(name)(settings)
    except UserError:
        raise
    except Exception as error:
        why = (str(error).strip().splitlines() or ["without a word"])[0]
        raise UserError(
            f"metrics.sinks: {name} cannot be opened ({type(error).__name__}: {why}): mend that, or leave it out "
            "(metrics.jsonl is written anyway)"
        ) from error


def _maker(name: str) -> ExporterFactory:
    from launch.exporters.tensorboard import TensorBoardExporter
    from launch.exporters.trackio import TrackioExporter
    from launch.exporters.wandb import WandbExporter

    ours: dict[str, ExporterFactory] = {
        "wandb": WandbExporter,
        "tensorboard": TensorBoardExporter,
        "trackio": TrackioExporter,
    }
    if name in ours:
        return ours[name]
    added = load_plugin(PluginGroup.METRIC_SINKS, name)
    if not callable(added):
        raise UserError(f"'{name}' of {PluginGroup.METRIC_SINKS} is no sink: it has to be called with SinkSettings")
    return cast("ExporterFactory", added)
