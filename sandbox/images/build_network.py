"""The network of an image build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple, TypeAlias

from sandbox.errors import ImageError
from sandbox.tasks.task import NetworkMode


class BuildNetworkAccess(NamedTuple):
    """The network in which a build's RUN steps run, and the build arguments that describe it."""

    network: str
    args: Mapping[str, str]


BuildNetworkOpener: TypeAlias = Callable[
    [NetworkMode, tuple[str, ...]], AbstractAsyncContextManager[BuildNetworkAccess]
]
"""Opens the network for a mode and its allowed hosts."""


def open_default_network(
    mode: NetworkMode, allowed_hosts: tuple[str, ...]
) -> AbstractAsyncContextManager[BuildNetworkAccess]:
    """Return no network, or the engine's own for builds. Raises ImageError for mode ``proxy``."""
    del allowed_hosts
    if mode is NetworkMode.PROXY:
        raise ImageError("this build needs network `proxy`, but no egress proxy is open: see sandbox.egress_proxy")
    return nullcontext(BuildNetworkAccess("none" if mode is NetworkMode.NONE else "default", {}))
