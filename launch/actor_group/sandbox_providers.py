"""Sandbox providers other than the workers' own pools: their settings for workers, from the configuration and the
environment, and checks that they answer."""

from __future__ import annotations

import http
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from actors.agents.agent import Agent
from actors.workers.provider_settings import ProviderSettings
from launch.config import RunConfig
from protocol.errors import UserError
from protocol.plugins import PluginGroup, load_plugin
from protocol.processes.loopback import is_loopback
from sandbox.http.auth import TOKEN_VARIABLE, read_token
from sandbox.http.server_urls import worker_urls
from sandbox.providers.daytona.provider import DaytonaOptions
from sandbox.providers.daytona.sdk import load_sdk
from sandbox.providers.remote_tools import local_only_tools
from sandbox.providers.settings import DAYTONA, ENVIRONMENT, POOL, SandboxSettings

POOL_URLS_VARIABLE = "WORKER_URLS"
ENVIRONMENT_URLS_VARIABLE = "ENVIRONMENT_URLS"
_DAYTONA_KEY = "DAYTONA_API_KEY"
_ANSWER_S = 10.0


def make_provider_settings(sandbox: SandboxSettings, environment: Mapping[str, str]) -> ProviderSettings | None:
    """None where workers have pools of their own.  Raises UserError where pool servers are meant, and none is named."""
    if sandbox.uses_worker_pools:
        return None
    if sandbox.provider == ENVIRONMENT:
        return ProviderSettings(ENVIRONMENT, _environment_urls(sandbox, environment), read_token(None, environment))
    if sandbox.provider != POOL:
        return ProviderSettings(sandbox.provider, options=sandbox.options)
    said = ",".join(sandbox.urls) or environment.get(POOL_URLS_VARIABLE, "")
    if not said.strip(" ,"):
        raise UserError(
            "sandbox.provider = 'pool' needs pool servers, and none is named: --set "
            f"sandbox.urls=http://HOST:18081, or export {POOL_URLS_VARIABLE}=http://HOST:18081"
        )
    urls = worker_urls(said)
    if sandbox.group_slots and len(urls) > 1:
        raise UserError(
            f"sandbox.group_slots asks one address for the places of a whole group, and {POOL_URLS_VARIABLE} "
            f"has {len(urls)}"
            f": start a router (python -m sandbox.router --workers {','.join(urls)}) and name it alone"
        )
    return ProviderSettings(POOL, urls, read_token(None, environment), sandbox.group_slots)


def _environment_urls(sandbox: SandboxSettings, environment: Mapping[str, str]) -> tuple[str, ...]:
    said = ",".join(sandbox.urls) or environment.get(ENVIRONMENT_URLS_VARIABLE, "")
    if not said.strip(" ,"):
        raise UserError(
            "sandbox.provider = 'environment' needs environment services, and none is named: --set "
            f"sandbox.urls=http://HOST:18082, or export {ENVIRONMENT_URLS_VARIABLE}=http://HOST:18082"
        )
    return worker_urls(said)


def callback_address(urls: Sequence[str], address: str) -> str:
    """Where services at ``urls`` reach a worker on the node with ``address``: on loopback, if all of them are there
    too."""
    hosts = [urlsplit(url).hostname or "" for url in urls]
    return "127.0.0.1" if all(map(is_loopback, hosts)) else address


def check_provider(config: RunConfig, agent: Agent, environment: Mapping[str, str]) -> None:
    """It is there, and the agent's tools can be called in its sandboxes.  Raises UserError."""
    settings = make_provider_settings(config.sandbox, environment)
    if settings is None:
        return
    if settings.name == ENVIRONMENT:
        for url in settings.urls:
            _check_service(url, settings.token)
        _check_callback(config, settings.urls)
        return
    if bound := local_only_tools(agent.tools):
        raise UserError(
            f"agent.kind = '{config.agent.kind}' calls {', '.join(bound)}, which acts on a sandbox of its worker's own "
            f"pool, and sandbox.provider = '{settings.name}': --set sandbox.provider=docker, or choose another agent"
        )
    if settings.name == DAYTONA:
        DaytonaOptions.parse(settings.options)
        load_sdk()
        if not environment.get(_DAYTONA_KEY):
            raise UserError(f"sandbox.provider = 'daytona' needs a key: export {_DAYTONA_KEY}=…, from its dashboard")
    elif settings.name != POOL:
        load_plugin(PluginGroup.SANDBOX_PROVIDERS, settings.name)
    for url in settings.urls:
        places = _count_slots(_status(url, settings.token))
        if settings.together and places < config.rollout.group_size:
            raise UserError(
                f"sandbox.group_slots asks for {config.rollout.group_size} places at once, and {url} has {places}: "
                "start its servers with more (--max-tasks, --max-runs-per-task), or lower rollout.group_size"
            )


def _count_slots(status: Mapping[str, Any]) -> int:
    """All that a server has, or the workers of a router."""
    pools = [each.get("pool", {}) for each in status.get("workers", [status])]
    return sum(pool.get("max_tasks", 0) * pool.get("max_runs_per_task", 0) for pool in pools)


def _check_service(url: str, token: str) -> None:
    if "environment" not in _status(url, token, _SERVICE):
        raise UserError(
            f"what answers at {url} is no environment service: start one (python -m launch.environment), or set "
            "sandbox.provider = 'pool' for pool servers"
        )


def _check_callback(config: RunConfig, urls: Sequence[str]) -> None:
    """Services elsewhere reach the policy.  The nodes that a run starts itself are on loopback."""
    given = config.sandbox.callback or config.cluster.address
    if not given and not is_loopback(callback_address(urls, "elsewhere")):
        raise UserError(
            "the environment services are on other machines, and call the policy back at this one: --set "
            "sandbox.callback=ADDRESS, this machine's as they see it"
        )


class _Server(NamedTuple):
    """What may be asked for its status, in words for people."""

    name: str
    start: str


_POOL_SERVER = _Server("pool server", "python -m sandbox.server, or sandbox.router before several")
_SERVICE = _Server("environment service", "python -m launch.environment")


def _status(url: str, token: str, server: _Server = _POOL_SERVER) -> Mapping[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(f"{url}/status", headers=headers)  # noqa: S310  http or https: worker_urls
    try:
        with urllib.request.urlopen(asked, timeout=_ANSWER_S) as answer:  # noqa: S310  as above
            return orjson.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            raise UserError(
                f"the {server.name} {url} asks for another token than this: export {TOKEN_VARIABLE} as its host has it"
            ) from error
        why = f"says {error.code} to /status"
    except (OSError, ValueError) as error:
        why = f"does not answer ({error})"
    raise UserError(
        f"the {server.name} {url} {why}, and agents work in its sandboxes: start it ({server.start}), or mend "
        "sandbox.urls"
    )
