"""Settings of where a run's metrics go in addition to ``metrics.jsonl``, which is always written: ``[metrics]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from protocol.cli.suggestions import did_you_mean
from protocol.plugins import PluginGroup, plugin_names
from protocol.settings import CommaList, ConfigSection

BUILTIN_EXPORTERS = ("wandb", "tensorboard", "trackio")
"""Exporters that come with longshore, each named after the package that it needs."""


class MetricsSettings(ConfigSection):
    prometheus: bool = False
    """Whether metrics are served on 127.0.0.1 in Prometheus' format; launch/exporters/grafana.json is a dashboard for
    them."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Prometheus port on 127.0.0.1; 0 for a free one, which the run prints."""
    exporters: CommaList = ()
    """Exporters that get each step's metrics too: ``wandb``, ``tensorboard``, ``trackio``, each of which needs the
    package of that name, or one that a package adds (docs/plugins.md).  One that cannot be opened ends the run before
    it begins; later none can stop it or slow it down."""
    project: Annotated[str, Field(min_length=1)] = "longshore"
    """Project under which wandb and trackio file the run."""

    @field_validator("exporters")
    @classmethod
    def _exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = [*BUILTIN_EXPORTERS, *plugin_names(PluginGroup.METRIC_EXPORTERS)]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ValueError(f"metrics.exporters = '{name}' is not an exporter: there are {', '.join(known)}{hint}")
        if len(set(names)) < len(names):
            raise ValueError(f"metrics.exporters = {list(names)} names one twice: remove one of the two")
        return names

    @property
    def exports_metrics(self) -> bool:
        """Whether metrics go anywhere but to the run's directory."""
        return self.prometheus or bool(self.exporters)
