"""Checks the Docker engine: whether it answers, its set-up, its limits on containers, and room for networks."""

from __future__ import annotations

import http
import http.client
import ipaddress
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from actors.harnesses.catalog import PUBLISHED_HARNESSES
from actors.harnesses.installation import is_installed
from launch.doctor.check_runner import make_host_check
from launch.doctor.disk_limit import check_disk_limit, read_disk_bound
from launch.doctor.engine_holes import find_holes
from launch.doctor.finding import CheckName, Finding, failed, finding_from_error, ok, warning
from launch.doctor.network_filter import check_network_filter
from launch.doctor.requirements import HostRequirements
from protocol.errors import UserError
from sandbox.browser.installation import is_browser_installed
from sandbox.docker.address import DockerAddress
from sandbox.docker.daemon import call_engine_api, has_image
from sandbox.docker.network.private_networks import NETWORK_PREFIX, SUBNET_RANGE
from sandbox.docker.retry import Json
from sandbox.host_record import HostSettings, current_host
from sandbox.networking.networks import has_bridge
from sandbox.pool.disk_bound import DiskBound

_REQUEST_TIMEOUT_S = 5.0
_DEADLINE_S = 30.0
_OLDEST_API = (1, 41)
_SKEW_S = 2.0
_DEFAULT_POOLS = 31
"""Number of networks that fit into an engine's default address pools."""
_RESTART = "`systemctl restart docker`, or `longshore host down`, then `up`"


class EngineAnswer(StrEnum):
    """Answer of an address that should be an engine's."""

    YES = "yes"
    NONE = "none"
    """Nothing accepts the connection."""
    SILENT = "silent"
    """It accepts the connection and does not reply."""
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class DockerEngineFacts:
    configured_url: str = ""
    """URL in DOCKER_HOST, if set."""
    configured_answer: EngineAnswer = EngineAnswer.YES
    setup_error: UserError | None = None
    """Why the record of this machine's set-up cannot be read."""
    url: str = ""
    """URL of the engine in use."""
    answer: EngineAnswer = EngineAnswer.NONE
    base_image: str = ""
    has_base_image: bool = False
    toolchain: Path = Path()
    has_toolchain: bool = False
    has_wanted_image: bool = True
    has_wanted_harness: bool = True
    has_wanted_browser: bool = True
    version: str = ""
    api: tuple[int, ...] = ()
    components: Sequence[Json] = ()
    """The engine's parts with their versions."""
    disk_bound: DiskBound | None = None
    """The means by which the engine holds a sandbox's disk limit; None if that could not be tried."""
    limits: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Resource → whether the engine can limit it."""
    cgroup: str = ""
    ahead_s: float = 0.0
    """Seconds that the engine's clock is ahead of this machine's."""
    has_bridge: bool = False
    """Whether the engine forwards packets of containers to the outside by itself."""
    pools: int = _DEFAULT_POOLS
    """Number of networks that fit into the engine's address pools."""
    subnets: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a network → subnet."""
    routes: Sequence[str] = ()
    """Subnets that this machine has routes to."""
    root: bool = True
    """Whether this process runs as root."""


def read_docker_engine_facts(requirements: HostRequirements) -> DockerEngineFacts:
    """Query the engine; blocks for a few times :data:`_REQUEST_TIMEOUT_S` at most."""
    settings = HostSettings.from_environment()
    configured = settings.docker_url
    configured_answer = probe_engine(configured) if configured else EngineAnswer.YES
    if configured_answer is not EngineAnswer.YES:
        return DockerEngineFacts(configured, configured_answer)
    try:
        host = current_host(settings)
    except UserError as error:
        return DockerEngineFacts(configured, setup_error=error)
    answer = probe_engine(host.docker_url)
    if answer is not EngineAnswer.YES:
        return DockerEngineFacts(configured, url=host.docker_url, answer=answer)
    name = requirements.published_harness
    info, networks = _get(host.docker_url, "/info"), _get(host.docker_url, "/networks")
    version = _get(host.docker_url, "/version")
    has_base_image, has_toolchain = has_image(host.docker_url, host.base_image), host.toolchain.exists()
    return DockerEngineFacts(
        configured_url=configured,
        url=host.docker_url,
        answer=answer,
        base_image=host.base_image,
        has_base_image=has_base_image,
        toolchain=host.toolchain,
        has_toolchain=has_toolchain,
        disk_bound=read_disk_bound(host, info) if has_base_image and has_toolchain else None,
        has_wanted_image=not requirements.image or has_image(host.docker_url, requirements.image),
        has_wanted_harness=not name or is_installed(host.home, PUBLISHED_HARNESSES[name]),
        has_wanted_browser=not requirements.browser or is_browser_installed(host.home),
        version=str(info.get("ServerVersion", "")),
        api=tuple(int(part) for part in str(version.get("ApiVersion", "0")).split(".")),
        components=version.get("Components") or (),
        limits={name: bool(info.get(key)) for name, key in _LIMITS.items()},
        cgroup=f"v{info.get('CgroupVersion', '?')}, driver {info.get('CgroupDriver', '?')}",
        ahead_s=_ahead_s(str(info.get("SystemTime", ""))),
        has_bridge=has_bridge(str(network["Name"]) for network in networks),
        pools=_capacity(info.get("DefaultAddressPools") or ()),
        subnets=_subnets(networks),
        routes=_routes(Path("/proc/net/route")) if DockerAddress.parse(host.docker_url).socket else (),
        root=os.geteuid() == 0,
    )


_LIMITS = {"memory": "MemoryLimit", "processes": "PidsLimit", "processor time": "CpuCfsQuota"}
_NEEDED = ("memory", "processes")
"""Limits without which one sandbox can starve all others."""


def probe_engine(url: str) -> EngineAnswer:
    """Connect to an engine's address and return its answer.  Raises UserError for an invalid address."""
    connection = DockerAddress.parse(url).http_connection(_REQUEST_TIMEOUT_S)
    try:
        connection.request("GET", "/_ping")
        pong = connection.getresponse().read().strip() == b"OK"
    except PermissionError:
        return EngineAnswer.FORBIDDEN
    except TimeoutError:
        return EngineAnswer.SILENT
    except (OSError, http.client.HTTPException):
        return EngineAnswer.NONE
    finally:
        connection.close()
    return EngineAnswer.YES if pong else EngineAnswer.NONE


def _get(url: str, path: str) -> Any:
    status, body = call_engine_api(url, "GET", path, timeout_s=_REQUEST_TIMEOUT_S)
    return json.loads(body) if status == http.HTTPStatus.OK else {}


def _ahead_s(system_time: str) -> float:
    """Return how far the engine's clock is ahead, or 0 if its time is unknown."""
    try:
        return datetime.fromisoformat(f"{system_time[:26].rstrip('Z')}+00:00").timestamp() - time.time()
    except ValueError:
        return 0.0


def _capacity(pools: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of networks that fit into configured address pools."""
    sizes = [(ipaddress.ip_network(str(pool["Base"]), strict=False).prefixlen, int(pool["Size"])) for pool in pools]
    return sum(2 ** max(0, size - prefix) for prefix, size in sizes) or _DEFAULT_POOLS


def _subnets(networks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for network in networks:
        plan: dict[str, Any] = network.get("IPAM") or {}
        configs: list[dict[str, str]] = plan.get("Config") or []
        found |= {str(network["Name"]): config.get("Subnet", "") for config in configs}
    return found


def _routes(table: Path) -> tuple[str, ...]:
    """Return the destinations of the kernel's routing table without the default route."""
    found: list[str] = []
    for line in table.read_text().splitlines()[1:] if table.exists() else ():
        _, destination, _, _, _, _, _, mask = line.split()[:8]
        address, bits = (ipaddress.ip_address(int(word, 16).to_bytes(4, "little")) for word in (destination, mask))
        if int(bits):
            found.append(str(ipaddress.ip_network(f"{address}/{bits}", strict=False)))
    return tuple(found)


def check_docker_engine(facts: DockerEngineFacts, requirements: HostRequirements) -> list[Finding]:
    """Return the findings on Docker, cgroups and address pools."""
    if not requirements.docker:
        return [ok(CheckName.DOCKER, "not needed: sandboxes run on other machines")]
    problem = _access_problem(facts)
    if problem is not None:
        return [problem]
    return [
        *_docker(facts, requirements),
        *_holes(facts),
        *(check_disk_limit(facts.url, facts.disk_bound) if facts.has_base_image and facts.has_toolchain else ()),
        *check_network_filter(facts.url, requirements.network, has_bridge=facts.has_bridge),
        *_harness_access(facts, requirements),
        *_cgroup(facts),
        *_address_pools(facts),
    ]


def _access_problem(facts: DockerEngineFacts) -> Finding | None:
    """Return why the engine cannot be queried, if so."""
    where = f"DOCKER_HOST={facts.configured_url}"
    if facts.configured_answer is not EngineAnswer.YES:
        otherwise = "start it, or unset DOCKER_HOST and run `make setup`"
        return _no_engine(facts.configured_answer, where, otherwise)
    if facts.setup_error is not None:
        return finding_from_error(CheckName.DOCKER, facts.setup_error)
    if facts.answer is not EngineAnswer.YES:
        return _no_engine(facts.answer, facts.url, "run `make setup`, which starts one")
    return None


def _no_engine(answer: EngineAnswer, where: str, otherwise: str) -> Finding:
    if answer is EngineAnswer.FORBIDDEN:
        return failed(
            CheckName.DOCKER,
            f"this user may not use the Docker engine at {where}",
            "run `sudo usermod -aG docker $USER` and log in again, or run this as root",
        )
    if answer is EngineAnswer.SILENT:
        return failed(
            CheckName.DOCKER,
            f"the Docker engine at {where} accepts connections but does not reply within "
            f"{_REQUEST_TIMEOUT_S:g} s, and agents work in containers",
            f"restart it ({_RESTART})",
        )
    return failed(CheckName.DOCKER, f"no Docker engine answers at {where}, and agents work in containers", otherwise)


def _docker(facts: DockerEngineFacts, requirements: HostRequirements) -> list[Finding]:
    found: list[Finding] = []
    if not facts.has_base_image or not facts.has_toolchain:
        found.append(
            failed(
                CheckName.DOCKER,
                f"the base image {facts.base_image} or the toolchain {facts.toolchain} is missing, "
                "and sandboxes need both",
                "run `make setup`",
            )
        )
    if not facts.has_wanted_image:
        found.append(
            failed(
                CheckName.DOCKER,
                f"sandbox.image = '{requirements.image}' is not in the Docker engine at {facts.url}, and runs pull no "
                "images",
                f"run `longshore images pull {requirements.image}`, or leave the key out for the base image",
            )
        )
    if not facts.has_wanted_harness:
        name = requirements.published_harness
        found.append(
            failed(
                CheckName.DOCKER,
                f"agent.harness = '{name}' is not installed on this machine",
                f"run `longshore harness install {name}`",
            )
        )
    if not facts.has_wanted_browser:
        found.append(
            failed(
                CheckName.DOCKER,
                "agent.toolset = 'browser' needs Chromium, which is not installed for sandboxes on this machine",
                "run `longshore browser install`",
            )
        )
    if facts.api < _OLDEST_API:
        found.append(
            warning(
                CheckName.DOCKER,
                f"the engine at {facts.url} speaks API {'.'.join(map(str, facts.api))}, and nothing older than "
                f"{'.'.join(map(str, _OLDEST_API))} was tested",
                "install Docker 20.10 or newer",
            )
        )
    return found or [ok(CheckName.DOCKER, f"{facts.version} at {facts.url}, with {facts.base_image} and the toolchain")]


def _holes(facts: DockerEngineFacts) -> list[Finding]:
    fix = "update it, unless its distribution has repaired this version (the package's changelog names the CVE)"
    return [warning(CheckName.DOCKER, hole, fix) for hole in find_holes(facts.components)]


def _harness_access(facts: DockerEngineFacts, requirements: HostRequirements) -> list[Finding]:
    """Check that this process may enter sandbox namespaces, where a harness reaches the policy."""
    if not requirements.harness or (facts.root and DockerAddress.parse(facts.url).socket):
        return []
    return [
        failed(
            CheckName.DOCKER,
            "agent.harness: a harness reaches the policy through a socket inside its sandbox, which only root on the "
            f"Docker engine's host may open (the engine is at {facts.url})",
            "run there as root, or leave the key out for the built-in agent",
        )
    ]


def _cgroup(facts: DockerEngineFacts) -> list[Finding]:
    lacking = [name for name, can in facts.limits.items() if not can]
    if not lacking:
        return [ok(CheckName.CGROUP, f"{facts.cgroup}: {', '.join(facts.limits)} can be limited")]
    message = f"the engine at {facts.url} (cgroup {facts.cgroup}) cannot limit a container's {' and '.join(lacking)}"
    fix = (
        "enable the controllers: boot with `cgroup_enable=memory swapaccount=1`, or, for a rootless engine, delegate "
        "them (`systemctl edit user@.service`, Delegate=cpu memory pids)"
    )
    if any(name in _NEEDED for name in lacking):
        return [failed(CheckName.CGROUP, f"{message}, so one sandbox could exhaust the machine", fix)]
    return [warning(CheckName.CGROUP, message, fix)]


def _address_pools(facts: DockerEngineFacts) -> list[Finding]:
    """Check the ranges of networks: ours for tasks with services, the engine's for the bridge that sandboxes share."""
    ours = ipaddress.ip_network(SUBNET_RANGE)
    others = {name: subnet for name, subnet in facts.subnets.items() if not name.startswith(NETWORK_PREFIX)}
    found: list[Finding] = []
    inside = [subnet for subnet in {*others.values(), *facts.routes} if subnet and _overlap(subnet, ours)]
    known = [subnet for name, subnet in facts.subnets.items() if name.startswith(NETWORK_PREFIX)]
    if foreign := sorted(set(inside) - set(known)):
        found.append(
            warning(
                CheckName.ADDRESS_POOLS,
                f"{', '.join(foreign)} overlaps {SUBNET_RANGE}, the range of networks of tasks with services",
                "move that network or route (`docker network rm`, `ip route`), or expect tasks with services to fail",
            )
        )
    if len(others) >= facts.pools:
        found.append(
            warning(
                CheckName.ADDRESS_POOLS,
                f"{len(others)} networks fill the engine's address pools ({facts.pools}), and network 'full' needs one",
                "run `docker network prune`, or extend default-address-pools in the engine's daemon.json",
            )
        )
    return found or [
        ok(
            CheckName.ADDRESS_POOLS,
            f"{SUBNET_RANGE} is free for services, {len(others)} of {facts.pools} other networks used",
        )
    ]


def _overlap(subnet: str, ours: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    network = ipaddress.ip_network(subnet, strict=False)
    return network.version == ours.version and network.overlaps(ours)


def check_engine_clock(facts: DockerEngineFacts) -> list[Finding]:
    """Compare the engine's clock with this machine's."""
    if facts.answer is not EngineAnswer.YES or abs(facts.ahead_s) <= _SKEW_S:
        return []
    return [
        warning(
            CheckName.CLOCK,
            f"the Docker engine's clock is {facts.ahead_s:+.0f} s off this machine's",
            "synchronise both by NTP (`timedatectl set-ntp true`, or `chronyc makestep`)",
        )
    ]


def _check_all(facts: DockerEngineFacts, requirements: HostRequirements) -> list[Finding]:
    return [*check_docker_engine(facts, requirements), *(check_engine_clock(facts) if requirements.docker else ())]


DOCKER_ENGINE_CHECK = make_host_check(
    (CheckName.DOCKER, CheckName.DISK, CheckName.NETWORK, CheckName.CGROUP, CheckName.ADDRESS_POOLS),
    read_docker_engine_facts,
    _check_all,
    deadline_s=_DEADLINE_S,
    timeout_fix=f"restart the Docker engine ({_RESTART})",
)
