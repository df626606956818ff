"""Exports to trackio, a local database; ``trackio show`` draws it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from launch.exporters.metric_exporter import ExporterSettings


class TrackioExporter:
    def __init__(self, settings: ExporterSettings) -> None:
        trackio: Any = importlib.import_module("trackio")
        self._run: Any = trackio.init(
            project=settings.project, name=settings.run_id, config=dict(settings.config), resume="allow"
        )

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()
