"""The network of an image build."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple, TypeAlias

from sandbox.errors import ImageError
from sandbox.tasks.task_network import NetworkMode

MOST_ADDED_BYTES = 512 << 20
"""Most bytes that the URLs of one build's ADDs may have together: the process that builds holds them in memory."""
FetchUrl: TypeAlias = Callable[[str, int], Awaitable[bytes]]
"""Returns the content of a URL of ADD in a Dockerfile, of at most so many bytes. Raises ImageError."""


class BuildNetworkAccess(NamedTuple):
    """The network in which a build's RUN steps run, the build arguments that describe it, and what ADD fetches with."""

    network: str
    args: Mapping[str, str]
    fetch: FetchUrl


BuildNetworkOpener: TypeAlias = Callable[
    [NetworkMode, tuple[str, ...]], AbstractAsyncContextManager[BuildNetworkAccess]
]
"""Opens the network for a mode and its allowed hosts."""


async def fetch_added(urls: Iterable[str], fetch: FetchUrl) -> dict[str, bytes]:
    """Return the contents of the URLs of a build's ADDs, each fetched once.  Raises ImageError."""
    found: dict[str, bytes] = {}
    left = MOST_ADDED_BYTES
    for url in dict.fromkeys(urls):
        found[url] = await fetch(url, left)
        left -= len(found[url])
    return found


async def refuse_to_fetch(url: str, most_bytes: int) -> bytes:
    """Raise ImageError: the engine would fetch the URL from its own network."""
    del most_bytes
    raise ImageError(f"ADD {url} needs a network, and this build has none: set the build's network, or add the file")


def open_default_network(
    mode: NetworkMode, allowed_hosts: tuple[str, ...]
) -> AbstractAsyncContextManager[BuildNetworkAccess]:
    """Return no network, or the engine's own for builds. Raises ImageError for mode ``proxy``."""
    del allowed_hosts
    if mode is NetworkMode.PROXY:
        raise ImageError("this build needs network `proxy`, but no egress proxy is open: see sandbox.egress_proxy")
    network = "none" if mode is NetworkMode.NONE else "default"
    return nullcontext(BuildNetworkAccess(network, {}, refuse_to_fetch))
