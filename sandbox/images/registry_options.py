"""The command-line option for registries that need not be public."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import UseAppendAction

from protocol.cli.arguments import CommandArguments, repeatable
from sandbox.images.registry_hosts import RegistryEntry


class RegistryOptions(CommandArguments):
    """The option of every command that builds or pulls images."""

    allow_registry: UseAppendAction[Annotated[tuple[RegistryEntry, ...], repeatable("HOST")]] = ()
    """Registry from which images are pulled although its address is not public: registry.corp, registry.corp:5000,
    *.corp."""
