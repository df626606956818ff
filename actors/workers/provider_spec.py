"""A worker's sandbox provider: its name, its addresses and token as found at the start, and its options.

Imports nothing heavy, because the configuration imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """A provider other than the node's own Docker daemon."""

    name: str
    """``pool``, ``environment``, ``daytona``, or the name of a plugin."""
    urls: tuple[str, ...] = ()
    """URLs of pool servers or a router, or of environment services."""
    token: str = field(default="", repr=False)
    group_slots: bool = False
    """Start a training group's sandboxes only when there is a slot for each of them."""
    callback_host: str = "127.0.0.1"
    """Address of the worker's node at which environment services reach the policy."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict[str, str | int | float | bool])
    """Options of Daytona or of a plugin's provider."""
