"""Plugins: agents, rewards, task formats, sandbox providers and metric exporters from other packages' entry points.

A package declares ``name = "package.module:object"`` under ``[project.entry-points."longshore.agents"]``, and the
configuration selects it by that name; nothing of a package is imported before.  The package that uses the object
defines and checks its type; docs/plugins.md shows one of each.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError


class PluginGroup(StrEnum):
    AGENTS = "longshore.agents"
    REWARDS = "longshore.rewards"
    TASK_FORMATS = "longshore.task_formats"
    SANDBOX_PROVIDERS = "longshore.sandbox_providers"
    METRIC_EXPORTERS = "longshore.metric_exporters"


def plugin_names(group: PluginGroup) -> list[str]:
    """Return the names that installed packages add to ``group``, sorted."""
    return sorted({point.name for point in entry_points(group=group)})


def load_plugin(group: PluginGroup, name: str) -> object:
    """Return the object that an installed package adds under ``name``.  Raises UserError if none or several do, or its
    module cannot be imported."""
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        raise UserError(
            f"no installed package adds '{name}' to {group}{did_you_mean(name, plugin_names(group))}: install the one "
            f"that does into this environment, or correct the name"
        )
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise UserError(f"'{name}' is added to {group} by {packages}: uninstall all but one of them")
    (point,) = found
    try:
        return point.load()
    except Exception as error:  # boundary to foreign code: any failure names the package
        raise UserError(
            f"'{name}' of {group} cannot be loaded from {point.value} of {_package(point)} "
            f"({type(error).__name__}: {error}): fix that package, or uninstall it"
        ) from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
