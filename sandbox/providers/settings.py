"""Settings of a run's sandboxes: the provider, the number of sandboxes, and their time limits."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.plugins import PluginGroup, plugin_names
from protocol.settings import CommaList, PositiveInt, Seconds
from sandbox.http.server_urls import parse_server_urls
from sandbox.pool.settings import COMMAND_TIMEOUT_S, START_CONCURRENCY, ContainerSettings
from sandbox.tasks.network_policy import DEFAULT_NETWORK_POLICY, NetworkPolicy

DOCKER = "docker"
"""Each worker has its own pool on its machine's Docker daemon."""
POOL = "pool"
"""Pool servers, or the router in front of them."""
ENVIRONMENT = "environment"
"""Environment services, which run whole episodes."""
DAYTONA = "daytona"
"""Sandboxes at Daytona, through its SDK."""
_PROVIDERS = (DOCKER, POOL, ENVIRONMENT, DAYTONA)
_DOCKER_ONLY_KEYS = ("image", "allow_hosts", "allow_registries", "python_index", "npm_index")
"""Keys that only a worker's own pool reads, and that have no value unless the user sets one."""


class SandboxSettings(ContainerSettings):
    """Provider of a run's sandboxes, and their limits."""

    provider: str = DOCKER
    """Provider of sandboxes: ``docker``, each worker's own pool on its machine; ``pool``, pool servers or their router
    (longshore server, longshore router); ``environment``, services that run whole episodes on other machines
    (longshore environment); ``daytona``, a Daytona account (pip install 'longshore[daytona]'); or the name of a
    provider that a package adds (docs/plugins.md). For all but ``docker``, images, networks, capacity and lifetimes are
    set where the provider is started."""
    urls: CommaList = ()
    """URLs of the pool servers or of their router; empty for those in the variable WORKER_URLS. With ``environment``,
    URLs of the services; empty for those in ENVIRONMENT_URLS. The token is read from LONGSHORE_SANDBOX_TOKEN. With
    several servers, each task prefers one of them while that has room."""
    callback: str = ""
    """Address of this machine at which environment services reach the policy; empty for the address of each worker's
    node in a joined cluster, or for loopback if the services run on the same machine."""
    group_slots: bool = False
    """Start a group's first episode only when there is a slot for each of its episodes (``pool``, with one server or a
    router): they then run at the same time, and each slot is free again when its episode ends."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict[str, str | int | float | bool])
    """Options of ``daytona`` (docs/recipes.md), or of a provider that a package adds."""
    network: NetworkPolicy = DEFAULT_NETWORK_POLICY
    """Network of agents and tests: ``none``; ``task``, what each task asks for; ``proxy``, the egress proxy for tasks
    that ask for a network; ``full``, the internet. Without a word, tasks of Terminal-Bench and Harbor ask for the
    internet. Services of a task can be reached in any case."""
    capacity_per_node: PositiveInt = 24
    """Maximum containers alive at once on a node, or on a machine with simulated nodes; a run that would need more is
    refused."""
    start_concurrency: PositiveInt = START_CONCURRENCY
    """Containers that start at once on a node in the beginning; measured start times then adjust the number. The node's
    workers share it, simulated nodes included, and each may start at least one."""
    command_timeout_s: Seconds = COMMAND_TIMEOUT_S
    """Maximum seconds of an agent's command; a longer one is stopped inside the container, or continues in the
    background if the agent has SETA's or OpenClaw's tools."""
    grade_timeout_s: Seconds = 60.0
    """Maximum seconds of a task's tests; a task may allow less."""

    @property
    def uses_worker_pools(self) -> bool:
        """True if each worker has its own pool."""
        return self.provider == DOCKER

    @field_validator("provider")
    @classmethod
    def _provider_exists(cls, provider: str) -> str:
        if provider not in _PROVIDERS and provider not in (added := plugin_names(PluginGroup.SANDBOX_PROVIDERS)):
            known = [*_PROVIDERS, *added]
            raise ValueError(
                f"sandbox.provider = '{provider}' does not exist: there are {', '.join(known)}"
                f"{did_you_mean(provider, known)}"
            )
        return provider

    @model_validator(mode="after")
    def _keys_are_read_by_the_provider(self) -> Self:
        """Refuse keys that the chosen provider does not read."""
        if self.urls and self.provider not in {POOL, ENVIRONMENT}:
            raise ValueError(
                f"sandbox.urls are pool servers or environment services, which sandbox.provider = '{self.provider}' "
                "does not use: set sandbox.provider = 'pool' or 'environment', or remove sandbox.urls"
            )
        if self.callback and self.provider != ENVIRONMENT:
            raise ValueError(
                "sandbox.callback is for sandbox.provider = 'environment', whose services call the policy back: set "
                "that, or remove sandbox.callback"
            )
        if self.urls:
            try:
                parse_server_urls(",".join(self.urls))
            except UserError as error:
                raise ValueError(f"sandbox.urls: {error}") from error
        if self.group_slots and (self.provider != POOL or len(self.urls) > 1):
            raise ValueError(
                "sandbox.group_slots requests a whole group's slots from one address: set sandbox.provider = 'pool' "
                "and sandbox.urls to one server or router (longshore router), or remove sandbox.group_slots"
            )
        if self.options and self.provider in {DOCKER, POOL, ENVIRONMENT}:
            raise ValueError(
                "sandbox.options are for daytona and providers that packages add, but sandbox.provider = "
                f"'{self.provider}' has none: remove {', '.join(self.options)}"
            )
        unread = [f"sandbox.{name}" for name in _DOCKER_ONLY_KEYS if not self.uses_worker_pools and getattr(self, name)]
        if unread:
            raise ValueError(
                f"{', '.join(unread)}: sandbox.provider = '{self.provider}' sets them where it is "
                "started: remove them here, or set sandbox.provider = 'docker'"
            )
        return self
