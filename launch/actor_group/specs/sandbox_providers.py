"""Sandbox providers other than the workers' own pools: builds their specs from the configuration and the environment
variables, and checks that they answer."""

from __future__ import annotations

import http
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from actors.agents.agent import Agent
from actors.harnesses.installation import require_installed
from actors.rollout.settings import HarnessSettings
from actors.workers.provider_spec import ProviderSpec
from launch.config import RunConfig
from launch.config.recipe_environment import URL_VARIABLES
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin
from protocol.processes.loopback import is_loopback
from sandbox.host_record import HostSettings
from sandbox.http.auth import TOKEN_VARIABLE, read_token
from sandbox.http.server_urls import parse_server_urls
from sandbox.providers.daytona.provider import DaytonaOptions
from sandbox.providers.daytona.sdk import load_sdk
from sandbox.providers.remote_tools import local_only_tools
from sandbox.providers.settings import DAYTONA, ENVIRONMENT, POOL, SandboxSettings

_POOL_URLS, _ENVIRONMENT_URLS = URL_VARIABLES[POOL], URL_VARIABLES[ENVIRONMENT]
_DAYTONA_KEY = "DAYTONA_API_KEY"
_STATUS_TIMEOUT_S = 10.0


def make_provider_spec(sandbox: SandboxSettings, environment: Mapping[str, str]) -> ProviderSpec | None:
    """Return the provider's spec; None if workers have their own pools.

    Raises UserError if the provider needs URLs and none is configured."""
    if sandbox.uses_worker_pools:
        return None
    if sandbox.provider == ENVIRONMENT:
        return ProviderSpec(ENVIRONMENT, _environment_urls(sandbox, environment), read_token(None, environment))
    if sandbox.provider != POOL:
        return ProviderSpec(sandbox.provider, options=sandbox.options)
    configured = ",".join(sandbox.urls) or environment.get(_POOL_URLS, "")
    if not configured.strip(" ,"):
        raise UserError(
            "sandbox.provider = 'pool' needs the URLs of pool servers: --set "
            f"sandbox.urls=http://HOST:18081, or export {_POOL_URLS}=http://HOST:18081"
        )
    urls = parse_server_urls(configured)
    if sandbox.group_slots and len(urls) > 1:
        raise UserError(
            f"sandbox.group_slots reserves the slots of a whole group at one address, and {_POOL_URLS} has "
            f"{len(urls)}: start a router (longshore router --servers {','.join(urls)}) and use only its URL"
        )
    return ProviderSpec(POOL, urls, read_token(None, environment), sandbox.group_slots)


def _environment_urls(sandbox: SandboxSettings, environment: Mapping[str, str]) -> tuple[str, ...]:
    configured = ",".join(sandbox.urls) or environment.get(_ENVIRONMENT_URLS, "")
    if not configured.strip(" ,"):
        raise UserError(
            "sandbox.provider = 'environment' needs the URLs of environment services: --set "
            f"sandbox.urls=http://HOST:18082, or export {_ENVIRONMENT_URLS}=http://HOST:18082"
        )
    return parse_server_urls(configured)


def callback_address(urls: Sequence[str], address: str) -> str:
    """Return the address at which services at ``urls`` reach a worker on a node: ``address``, or loopback if all
    services are on loopback."""
    hosts = [urlsplit(url).hostname or "" for url in urls]
    return "127.0.0.1" if all(map(is_loopback, hosts)) else address


def check_provider(config: RunConfig, agent: Agent, environment: Mapping[str, str]) -> None:
    """Check that the provider answers and that the agent's tools work in its sandboxes.  Raises UserError."""
    spec = make_provider_spec(config.sandbox, environment)
    if spec is None:
        return
    if spec.name == ENVIRONMENT:
        for url in spec.urls:
            _check_service(url, spec.token)
        check_callback(config, spec.urls)
        return
    if bound := local_only_tools(agent.tools):
        raise UserError(
            f"agent.kind = '{config.agent.kind}' calls {', '.join(bound)}, which needs a sandbox of the worker's own "
            f"pool, but sandbox.provider = '{spec.name}': --set sandbox.provider=docker, or choose another agent"
        )
    if spec.name == DAYTONA:
        DaytonaOptions.parse(spec.options)
        load_sdk()
        if not environment.get(_DAYTONA_KEY):
            raise UserError(f"sandbox.provider = 'daytona' needs a key: export {_DAYTONA_KEY}=…, from its dashboard")
        if (harness := config.agent.published_harness) is not None and not config.cluster.address:
            require_installed(HostSettings.from_environment(environment).home, harness)
    elif spec.name != POOL:
        load_plugin(PluginGroup.SANDBOX_PROVIDERS, spec.name)
    for url in spec.urls:
        status = _fetch_status(url, spec.token)
        _check_harness(config.agent, url, status)
        slots = _count_slots(status)
        if spec.group_slots and slots < config.rollout.group_size:
            raise UserError(
                f"sandbox.group_slots needs {config.rollout.group_size} slots at once, and {url} has {slots}: "
                "start its servers with more (--max-tasks, --max-runs-per-task), or lower rollout.group_size"
            )


def _check_harness(agent: HarnessSettings, url: str, status: Mapping[str, Any]) -> None:
    """Check that a pool server, or each one behind a router, can run the configured harness.  Raises UserError."""
    if not agent.harness:
        return
    harness = agent.published_harness
    for server in status.get("workers", [status]):
        if (pool := server.get("pool")) is None:
            continue  # the router does not reach it now, and starts no sandbox there
        machine = server.get("url", url)
        if not pool.get("can_run_agents"):
            raise UserError(
                f"agent.harness: the pool server {machine} cannot listen in its sandboxes, where a harness reaches the "
                "policy: start it as root on its Docker engine's machine, with this version of longshore"
            )
        if harness is not None and harness.folder not in pool.get("agent_programs", ()):
            raise UserError(
                f"{harness.title} {harness.package.version} is not installed on the machine of the pool server "
                f"{machine}: run `longshore harness install {harness.name}` there"
            )


def _count_slots(status: Mapping[str, Any]) -> int:
    """Return the number of slots of a server, or of all servers behind a router."""
    pools = [each.get("pool", {}) for each in status.get("workers", [status])]
    return sum(pool.get("max_tasks", 0) * pool.get("max_runs_per_task", 0) for pool in pools)


def _check_service(url: str, token: str) -> None:
    if "environment" not in _fetch_status(url, token, _SERVICE):
        raise UserError(
            f"the server at {url} is not an environment service: start one (longshore environment), or set "
            "sandbox.provider = 'pool' for pool servers"
        )


def check_callback(config: RunConfig, urls: Sequence[str]) -> None:
    """Check that services on other machines can reach the policy: nodes that a run starts itself are on loopback."""
    configured = config.sandbox.callback or config.cluster.address
    if not configured and not is_loopback(callback_address(urls, "elsewhere")):
        raise UserError(
            "the environment services are on other machines and must reach the policy on this one: --set "
            "sandbox.callback=ADDRESS, where ADDRESS is this machine's address in their network"
        )


class _Server(NamedTuple):
    """A kind of server with a status page."""

    name: str
    start: str
    """The command that starts one."""


_POOL_SERVER = _Server("pool server", "longshore server, or longshore router before several")
_SERVICE = _Server("environment service", "longshore environment")


def _fetch_status(url: str, token: str, server: _Server = _POOL_SERVER) -> Mapping[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url}/status", headers=headers)  # noqa: S310  http or https: parse_server_urls
    try:
        with urllib.request.urlopen(request, timeout=_STATUS_TIMEOUT_S) as response:  # noqa: S310  as above
            return orjson.loads(response.read())
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            raise UserError(
                f"the {server.name} {url} refuses the token: export {TOKEN_VARIABLE} with the value on its host"
            ) from error
        why = f"answers /status with {error.code}"
    except (OSError, ValueError) as error:
        why = f"does not answer ({error})"
    raise UserError(
        f"the {server.name} {url} {why}, so the run has no sandboxes: start it ({server.start}), or correct "
        "sandbox.urls"
    )
