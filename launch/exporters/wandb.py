"""Exports to Weights & Biases: a run of the same id, which a resume continues.  Key and mode are the package's own to
find (``wandb login``, WANDB_API_KEY, WANDB_MODE=offline); its files are in the run's directory."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from launch.exporters.metric_exporter import ExporterSettings


class WandbExporter:
    def __init__(self, settings: ExporterSettings) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._run: Any = wandb.init(
            project=settings.project,
            id=settings.run_id,
            name=settings.run_id,
            dir=str(settings.run_dir),
            config=dict(settings.config),
            resume="allow",
            settings=wandb.Settings(console="off", x_disable_stats=True),
        )
        self._run.define_metric("*", step_metric="step")  # steps come again after a resume

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({**metrics, "step": step})

    def close(self) -> None:
        self._run.finish()
