"""Opens providers of sandboxes that other packages add, by name.

A provider is an entry point of the group ``longshore.sandbox_providers``: a callable that takes the user's options and
returns an asynchronous context manager of a :class:`~sandbox.providers.interface.SandboxProvider`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias, cast

from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin
from sandbox.providers.interface import SandboxProvider

ProviderOptions: TypeAlias = Mapping[str, str | int | float | bool]
_Open: TypeAlias = Callable[[ProviderOptions], AbstractAsyncContextManager[object]]


@asynccontextmanager
async def open_plugin_provider(name: str, options: ProviderOptions) -> AsyncGenerator[SandboxProvider]:
    """``async with open_plugin_provider("lab", {"url": …}) as provider``.

    Raises UserError if there is no such provider, or if it does not fit the interface.
    """
    made = load_plugin(PluginGroup.SANDBOX_PROVIDERS, name)
    opening = cast("_Open", made)(options) if callable(made) else None
    if not isinstance(opening, AbstractAsyncContextManager):
        raise UserError(_invalid_provider(name))
    async with opening as provider:
        if not isinstance(provider, SandboxProvider):
            raise UserError(_invalid_provider(name))
        yield provider


def _invalid_provider(name: str) -> str:
    return (
        f"the sandbox provider '{name}' is invalid: its entry point must be a callable that takes options and returns "
        "an asynchronous context manager of a SandboxProvider (sandbox/providers/interface.py, docs/plugins.md)"
    )
