"""The Docker engine: that it answers and was set up, what it can hold a container to, and what networks it can make."""

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

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed, finding_from_error, ok, warning
from launch.doctor.requirements import HostRequirements
from protocol.errors import UserError
from sandbox.docker.address import DockerAddress
from sandbox.docker.daemon import call_engine_api, has_image
from sandbox.docker.networks import NETWORK_PREFIX, SUBNET_RANGE
from sandbox.host_record import HostSettings, current_host

_PATIENCE_S = 5.0
_DEADLINE_S = 30.0
_OLDEST_API = (1, 41)
_SKEW_S = 2.0
_DEFAULT_POOLS = 31
"""Networks that an engine can make out of its own ranges where nobody has set others."""
_RESTART = "`systemctl restart docker`, or `python -m sandbox.host down`, then `up`"


class EngineAnswer(StrEnum):
    """What an address does that should be an engine's."""

    YES = "yes"
    NOBODY = "nobody"
    """There is nothing to connect to."""
    SILENT = "silent"
    """It takes a connection, and says nothing."""
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class DockerEngineFacts:
    configured_url: str = ""
    """DOCKER_HOST's engine, if it names one."""
    configured_answer: EngineAnswer = EngineAnswer.YES
    setup_error: UserError | None = None
    """Why nothing is recorded of this machine's set-up."""
    url: str = ""
    """Of the engine that this machine was set up with."""
    answer: EngineAnswer = EngineAnswer.NOBODY
    base_image: str = ""
    has_base_image: bool = False
    toolchain: Path = Path()
    has_toolchain: bool = False
    has_wanted_image: bool = True
    version: str = ""
    api: tuple[int, ...] = ()
    limits: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Resource → whether the engine can limit it."""
    cgroup: str = ""
    ahead_s: float = 0.0
    """Of the engine's clock."""
    pools: int = _DEFAULT_POOLS
    """Networks that the engine has ranges for."""
    subnets: Mapping[str, str] = field(default_factory=dict[str, str])
    """Network of the engine → subnet."""
    routes: Sequence[str] = ()
    """Subnets that this machine has a route to."""
    root: bool = True
    """Processes of ours are root's."""


def look(wants: HostRequirements) -> DockerEngineFacts:
    """Blocks for a few times :data:`_PATIENCE_S` at most."""
    settings = HostSettings.from_environment()
    asked = settings.docker_url
    asked_answer = probe_engine(asked) if asked else EngineAnswer.YES
    if asked_answer is not EngineAnswer.YES:
        return DockerEngineFacts(asked, asked_answer)
    try:
        host = current_host(settings)
    except UserError as error:
        return DockerEngineFacts(asked, setup_error=error)
    answer = probe_engine(host.docker_url)
    if answer is not EngineAnswer.YES:
        return DockerEngineFacts(asked, url=host.docker_url, answer=answer)
    info, networks = _get(host.docker_url, "/info"), _get(host.docker_url, "/networks")
    return DockerEngineFacts(
        configured_url=asked,
        url=host.docker_url,
        answer=answer,
        base_image=host.base_image,
        has_base_image=has_image(host.docker_url, host.base_image),
        toolchain=host.toolchain,
        has_toolchain=host.toolchain.exists(),
        has_wanted_image=not wants.image or has_image(host.docker_url, wants.image),
        version=str(info.get("ServerVersion", "")),
        api=tuple(int(part) for part in str(_get(host.docker_url, "/version").get("ApiVersion", "0")).split(".")),
        limits={name: bool(info.get(key)) for name, key in _LIMITS.items()},
        cgroup=f"v{info.get('CgroupVersion', '?')}, driver {info.get('CgroupDriver', '?')}",
        ahead_s=_ahead_s(str(info.get("SystemTime", ""))),
        pools=_capacity(info.get("DefaultAddressPools") or ()),
        subnets=_subnets(networks),
        routes=_routes(Path("/proc/net/route")) if DockerAddress.parse(host.docker_url).socket else (),
        root=os.geteuid() == 0,
    )


_LIMITS = {"memory": "MemoryLimit", "processes": "PidsLimit", "processor time": "CpuCfsQuota"}
_NEEDED = ("memory", "processes")
"""Without these one sandbox takes the machine from all the others."""


def probe_engine(url: str) -> EngineAnswer:
    """What an engine's address does within a few seconds.  Raises UserError for no address."""
    connection = DockerAddress.parse(url).http_connection(_PATIENCE_S)
    try:
        connection.request("GET", "/_ping")
        pong = connection.getresponse().read().strip() == b"OK"
    except PermissionError:
        return EngineAnswer.FORBIDDEN
    except TimeoutError:
        return EngineAnswer.SILENT
    except (OSError, http.client.HTTPException):
        return EngineAnswer.NOBODY
    finally:
        connection.close()
    return EngineAnswer.YES if pong else EngineAnswer.NOBODY


def _get(url: str, path: str) -> Any:
    status, body = call_engine_api(url, "GET", path, timeout_s=_PATIENCE_S)
    return json.loads(body) if status == http.HTTPStatus.OK else {}


def _ahead_s(said: str) -> float:
    """0 where the engine does not say what time it is."""
    try:
        return datetime.fromisoformat(f"{said[:26].rstrip('Z')}+00:00").timestamp() - time.time()
    except ValueError:
        return 0.0


def _capacity(pools: Sequence[Mapping[str, Any]]) -> int:
    """Networks that fit into the ranges that an engine was told of."""
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
    """Destinations of the kernel's table, the default left out."""
    found: list[str] = []
    for line in table.read_text().splitlines()[1:] if table.exists() else ():
        _, destination, _, _, _, _, _, mask = line.split()[:8]
        address, bits = (ipaddress.ip_address(int(word, 16).to_bytes(4, "little")) for word in (destination, mask))
        if int(bits):
            found.append(str(ipaddress.ip_network(f"{address}/{bits}", strict=False)))
    return tuple(found)


def judge(facts: DockerEngineFacts, wants: HostRequirements) -> list[Finding]:
    """Docker, cgroup and address pools."""
    if not wants.docker:
        return [ok(CheckName.DOCKER, "not needed: sandboxes are another machine's")]
    trouble = _trouble(facts)
    if trouble is not None:
        return [trouble]
    return [*_docker(facts, wants), *_doors(facts, wants), *_cgroup(facts), *_address_pools(facts)]


def _trouble(facts: DockerEngineFacts) -> Finding | None:
    """What keeps the engine from being asked anything."""
    where = f"DOCKER_HOST={facts.configured_url}"
    if facts.configured_answer is not EngineAnswer.YES:
        otherwise = "start it, or unset DOCKER_HOST and run `make setup`"
        return _no_engine(facts.configured_answer, where, otherwise)
    if facts.setup_error is not None:
        return finding_from_error(CheckName.DOCKER, facts.setup_error)
    if facts.configured_url and facts.configured_url != facts.url:
        return failed(
            CheckName.DOCKER,
            f"{where} is not the engine that this machine was set up with, {facts.url}",
            "run `make setup` to use it, or unset DOCKER_HOST",
        )
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
            f"the Docker engine at {where} takes a connection and says nothing for {_PATIENCE_S:g} s: it hangs, and "
            "agents work in containers",
            f"restart it ({_RESTART})",
        )
    return failed(CheckName.DOCKER, f"no Docker engine answers at {where}, and agents work in containers", otherwise)


def _docker(facts: DockerEngineFacts, wants: HostRequirements) -> list[Finding]:
    found: list[Finding] = []
    if not facts.has_base_image or not facts.has_toolchain:
        found.append(
            failed(
                CheckName.DOCKER,
                f"the base image {facts.base_image} or the toolchain {facts.toolchain} is gone, "
                "and sandboxes are made of them",
                "run `make setup`",
            )
        )
    if not facts.has_wanted_image:
        found.append(
            failed(
                CheckName.DOCKER,
                f"sandbox.image = '{wants.image}' is not in the Docker engine at {facts.url}, and a run asks no "
                "registry",
                f"run `python -m sandbox.images pull {wants.image}`, or leave the key out for the base image",
            )
        )
    if facts.api < _OLDEST_API:
        found.append(
            warning(
                CheckName.DOCKER,
                f"the engine at {facts.url} speaks API {'.'.join(map(str, facts.api))}, and nothing older than "
                f"{'.'.join(map(str, _OLDEST_API))} was tried",
                "install Docker 20.10 or newer",
            )
        )
    return found or [ok(CheckName.DOCKER, f"{facts.version} at {facts.url}, with {facts.base_image} and the toolchain")]


def _doors(facts: DockerEngineFacts, wants: HostRequirements) -> list[Finding]:
    """A harness reaches the policy by a door in its sandbox: this process may enter the sandbox's namespaces."""
    if not wants.harness or (facts.root and DockerAddress.parse(facts.url).socket):
        return []
    return [
        failed(
            CheckName.DOCKER,
            "agent.harness: a harness reaches the policy by a door that is opened in its sandbox, and only root on the "
            f"Docker engine's host may open one (the engine is at {facts.url})",
            "run there as root, or leave the key out for the built-in agent",
        )
    ]


def _cgroup(facts: DockerEngineFacts) -> list[Finding]:
    lacking = [name for name, can in facts.limits.items() if not can]
    if not lacking:
        return [ok(CheckName.CGROUP, f"{facts.cgroup}: {', '.join(facts.limits)} can be limited")]
    said = f"the engine at {facts.url} (cgroup {facts.cgroup}) cannot limit a container's {' and '.join(lacking)}"
    fix = (
        "enable the controllers: boot with `cgroup_enable=memory swapaccount=1`, or, for a rootless engine, delegate "
        "them (`systemctl edit user@.service`, Delegate=cpu memory pids)"
    )
    if any(name in _NEEDED for name in lacking):
        return [failed(CheckName.CGROUP, f"{said}, so that one sandbox could take all of the machine's", fix)]
    return [warning(CheckName.CGROUP, said, fix)]


def _address_pools(facts: DockerEngineFacts) -> list[Finding]:
    """Services' networks are made in our own range; the bridge that sandboxes share, in the engine's."""
    ours = ipaddress.ip_network(SUBNET_RANGE)
    theirs = {name: subnet for name, subnet in facts.subnets.items() if not name.startswith(NETWORK_PREFIX)}
    found: list[Finding] = []
    inside = [subnet for subnet in {*theirs.values(), *facts.routes} if subnet and _overlap(subnet, ours)]
    known = [subnet for name, subnet in facts.subnets.items() if name.startswith(NETWORK_PREFIX)]
    if foreign := sorted(set(inside) - set(known)):
        found.append(
            warning(
                CheckName.ADDRESS_POOLS,
                f"{', '.join(foreign)} overlaps {SUBNET_RANGE}, where the networks of tasks with services are made",
                "move that network or route (`docker network rm`, `ip route`), or expect tasks with services to fail",
            )
        )
    if len(theirs) >= facts.pools:
        found.append(
            warning(
                CheckName.ADDRESS_POOLS,
                f"{len(theirs)} networks take up the engine's ranges ({facts.pools} fit), and network 'full' needs one",
                "run `docker network prune`, or give the engine more ranges (default-address-pools in daemon.json)",
            )
        )
    return found or [
        ok(CheckName.ADDRESS_POOLS, f"{SUBNET_RANGE} is free for services, {len(theirs)} of {facts.pools} others used")
    ]


def _overlap(subnet: str, ours: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    network = ipaddress.ip_network(subnet, strict=False)
    return network.version == ours.version and network.overlaps(ours)


def judge_engine_clock(facts: DockerEngineFacts) -> list[Finding]:
    """Whether the engine's clock is this machine's."""
    if facts.answer is not EngineAnswer.YES or abs(facts.ahead_s) <= _SKEW_S:
        return []
    return [
        warning(
            CheckName.CLOCK,
            f"the Docker engine's clock is {facts.ahead_s:+.0f} s off this machine's",
            "set both by NTP (`timedatectl set-ntp true`, or `chronyc makestep`)",
        )
    ]


def _judge_all(facts: DockerEngineFacts, wants: HostRequirements) -> list[Finding]:
    return [*judge(facts, wants), *(judge_engine_clock(facts) if wants.docker else ())]


DOCKER_ENGINE_CHECK = make_host_check(
    (CheckName.DOCKER, CheckName.CGROUP, CheckName.ADDRESS_POOLS),
    look,
    _judge_all,
    deadline_s=_DEADLINE_S,
    timeout_fix=f"restart the Docker engine ({_RESTART})",
)
