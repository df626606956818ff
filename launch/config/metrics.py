"""Where a run's figures go beside ``metrics.jsonl``, which is always written."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from protocol.cli.suggestions import did_you_mean
from protocol.plugins import PluginGroup, plugin_names
from protocol.settings import ConfigSection

BUILTIN_EXPORTERS = ("wandb", "tensorboard", "trackio")
"""Those that come with longshore, by the packages that they need."""


class MetricsSection(ConfigSection):
    prometheus: bool = False
    """Serve the run's figures on 127.0.0.1 in Prometheus' format; launch/exporters/grafana.json draws them."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of that on 127.0.0.1; 0 for a free one, which the run says."""
    exporters: tuple[str, ...] = ()
    """Who gets each step's figures too: ``wandb``, ``tensorboard``, ``trackio``, each by a package of that name, or the
    name of one that a package adds (docs/plugins.md).  One that cannot be opened ends the run before it begins; later
    none can stop it or slow it down."""
    project: Annotated[str, Field(min_length=1)] = "longshore"
    """Under which wandb and trackio file the run."""

    @field_validator("exporters", mode="before")
    @classmethod
    def _one_by_one(cls, listed: object) -> object:
        """A text has them with commas between."""
        return tuple(each.strip() for each in listed.split(",") if each.strip()) if isinstance(listed, str) else listed

    @field_validator("exporters")
    @classmethod
    def _are_there(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = [*BUILTIN_EXPORTERS, *plugin_names(PluginGroup.METRIC_EXPORTERS)]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ValueError(f"metrics.exporters = '{name}' takes no figures: there are {', '.join(known)}{hint}")
        if len(set(names)) < len(names):
            raise ValueError(f"metrics.exporters = {list(names)} names one twice: leave it out once")
        return names

    @property
    def exports_metrics(self) -> bool:
        """Whether figures go anywhere but to the run's directory."""
        return self.prometheus or bool(self.exporters)
