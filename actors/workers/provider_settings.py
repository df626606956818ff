"""What a worker is told of who gives it sandboxes: names and addresses, and nothing that has to be loaded for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Of a provider other than the node's own Docker daemon."""

    name: str
    """:data:`POOL`, :data:`ENVIRONMENT`, :data:`DAYTONA`, or one that a package adds."""
    urls: tuple[str, ...] = ()
    """Of pool servers, or of a router; of environment services."""
    token: str = field(default="", repr=False)
    together: bool = False
    """A training group's sandboxes are begun when there is a place for each of them."""
    callback_host: str = "127.0.0.1"
    """Address of a worker's node at which environment services reach the policy."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict[str, str | int | float | bool])
    """For Daytona, or one that a package adds."""
