"""Private networks: one for the containers of one session, with no route outside.

Their subnets come from longshore's own range, because Docker's default ranges are exhausted after some thirty networks.
They carry their owner's labels, so that the networks of a dead process can be removed (:mod:`sandbox.pool.orphans`).
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import aiodocker

from protocol.processes.cancellation import call_with_undo
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import BUSY_STATUSES, DockerEngineError, Json, call_with_retries

MAX_SERVICES = 10
"""Maximum services of one task: a network has addresses for these, the agent's container and the verifiers."""
NETWORK_PREFIX = "longshore-"
"""Prefix of the names of all longshore networks."""
SUBNET_RANGE = "10.213.0.0/16"
"""Address range of all private networks."""
_FIRST_SUBNET, _SUBNETS, _SUBNET_ADDRESSES = (10 << 24) + (213 << 16), 4096, 16
_TRIES = 64
_TEARDOWN_S = 30.0
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """An entry in the daemon's list of networks."""

    id: str
    name: str
    labels: Mapping[str, str]


async def list_networks(engine: DockerEngine, labels: Mapping[str, str]) -> tuple[NetworkInfo, ...]:
    """List the networks that carry all these labels. Raises DockerEngineError."""
    filters = {"label": [f"{key}={value}" for key, value in labels.items()]}

    async def call() -> tuple[NetworkInfo, ...]:
        listed = await engine.docker.networks.list(filters=filters)
        return tuple(NetworkInfo(each["Id"], each["Name"], each["Labels"] or {}) for each in listed)

    return await call_with_retries("list the networks", call, BUSY_STATUSES)


async def create_private_network(engine: DockerEngine, labels: Mapping[str, str]) -> str:
    """Create a network and return its name. When cancelled it leaves none. Raises DockerEngineError."""
    name = f"{NETWORK_PREFIX}{uuid.uuid4().hex[:16]}"
    first = random.randrange(_SUBNETS)
    for attempt in range(_TRIES):
        at = _FIRST_SUBNET + (first + attempt) % _SUBNETS * _SUBNET_ADDRESSES
        subnet = ".".join(str(at >> shift & 255) for shift in (24, 16, 8, 0)) + "/28"
        body: Json = {
            "Name": name,
            "CheckDuplicate": True,
            "Driver": "bridge",
            "Internal": True,
            "Labels": dict(labels),
            "Options": {"com.docker.network.bridge.inhibit_ipv4": "true"},  # this machine has no address on it
            "IPAM": {"Config": [{"Subnet": subnet}]},
        }
        try:
            await call_with_undo(lambda made=body: create_network(engine, made), lambda _: remove_network(engine, name))
        except DockerEngineError as error:
            if "overlap" not in str(error) or attempt == _TRIES - 1:
                raise
        else:
            return name
    raise AssertionError("unreachable")


async def create_network(engine: DockerEngine, body: Json) -> None:
    """Create a network from the body of Docker's ``POST /networks/create``. Raises DockerEngineError."""

    async def call() -> None:
        await engine.docker.networks.create(body)

    await call_with_retries(f"create the network {body['Name']}", call, frozenset(), idempotent=False)


async def remove_network(engine: DockerEngine, name: str, wait_s: float = _TEARDOWN_S) -> bool:
    """Remove a network; retry while the engine refuses because an ended container is still being removed.

    Returns False when the network is in use and ``wait_s`` is 0. Raises DockerEngineError.
    """
    give_up = time.monotonic() + wait_s
    while True:
        try:
            async with asyncio.timeout(_TEARDOWN_S):
                network = await engine.docker.networks.get(name)
                await network.delete()
        except aiodocker.DockerError as error:
            if error.status == 404:
                return True
            if time.monotonic() >= give_up:
                if error.status == 403 and not wait_s:
                    return False
                raise DockerEngineError(f"could not remove the network {name}: {error}", error.status) from error
        except (OSError, TimeoutError) as error:
            raise DockerEngineError(f"could not remove the network {name}: {error}") from error
        else:
            return True
        await asyncio.sleep(_LOOK_AGAIN_S)
