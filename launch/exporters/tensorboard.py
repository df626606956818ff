"""Exports to TensorBoard: event files in the run's directory.

``tensorboard --logdir runs`` shows them; torch is not needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from launch.exporters.metric_exporter import ExporterSettings


class TensorBoardExporter:
    def __init__(self, settings: ExporterSettings) -> None:
        summary: Any = importlib.import_module("tensorboard.summary")
        self._writer: Any = summary.Writer(str(settings.run_dir / "tensorboard"))

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
