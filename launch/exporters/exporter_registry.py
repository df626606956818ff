"""Opens the metric exporters that a run names: the built-in ones and those that plugins add."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from typing import cast

from launch.exporters.metric_exporter import ExporterFactory, ExporterSettings, MetricExporter
from launch.exporters.tensorboard import TensorBoardExporter
from launch.exporters.trackio import TrackioExporter
from launch.exporters.wandb import WandbExporter
from launch.settings.metrics import BUILTIN_EXPORTERS
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin, plugin_names

EXPORTER_OPTION = "--to"
"""Option of ``longshore exporters`` that names an exporter."""

_BUILTIN: dict[str, ExporterFactory] = {
    "wandb": WandbExporter,
    "tensorboard": TensorBoardExporter,
    "trackio": TrackioExporter,
}


def check_exporters(names: Iterable[str], source: str) -> None:
    """Raise UserError unless the packages that these exporters need are installed.  ``source`` is the setting or option
    that named them."""
    known = [*BUILTIN_EXPORTERS, *plugin_names(PluginGroup.METRIC_EXPORTERS)]
    for name in names:
        if name not in known:
            raise UserError(
                f"{source} names '{name}', and the exporters are {', '.join(known)}{did_you_mean(name, known)} (an "
                "installed package can add others)"
            )
        if name not in BUILTIN_EXPORTERS:
            load_plugin(PluginGroup.METRIC_EXPORTERS, name)
        elif importlib.util.find_spec(name) is None:
            raise UserError(
                f"{source} names '{name}', and {sys.executable} does not have that package: "
                f"{sys.executable} -m pip install 'longshore[{name}]', or leave it out"
            )


def open_exporter(name: str, settings: ExporterSettings) -> MetricExporter:
    """Open an exporter.  Raises UserError, with the reason, if that fails."""
    check_exporters([name], EXPORTER_OPTION)
    try:
        return _find_factory(name)(settings)
    except UserError:
        raise
    except Exception as error:
        why = (str(error).strip().splitlines() or ["no message"])[0]
        raise UserError(
            f"{EXPORTER_OPTION} {name}: {name} cannot be opened ({type(error).__name__}: {why}): correct this, or "
            "leave it out (metrics.jsonl is written anyway)"
        ) from error


def _find_factory(name: str) -> ExporterFactory:
    if name in _BUILTIN:
        return _BUILTIN[name]
    added = load_plugin(PluginGroup.METRIC_EXPORTERS, name)
    if not callable(added):
        raise UserError(
            f"'{name}' of {PluginGroup.METRIC_EXPORTERS} is not an exporter: it has to be callable with "
            "ExporterSettings"
        )
    return cast("ExporterFactory", added)
