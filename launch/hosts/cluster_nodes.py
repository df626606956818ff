"""Ray nodes: those of a cluster that a run joins, or local ones that simulate it.

Nodes with one address are on one machine.  Nodes on other machines than the driver's cannot reach the run's directory
(:mod:`launch.hosts`).  Local nodes listen on loopback (see ``LOCAL_RAY_ENVIRONMENT`` in
:mod:`launch.hosts.ray_environment`), carry the run's token (see :mod:`launch.processes.process_reaper`) and end with
the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from launch.settings.cluster import OBJECT_STORE_BYTES
from protocol.cli.suggestions import did_you_mean
from protocol.errors import InfraError, UserError
from protocol.processes.cancellation import temporary_resource

POLL_S = 1.0
_START_ATTEMPTS = 4
_LOCAL_WAIT_S = 120.0
_DEFAULT_FOLDER = "RAY_TMPDIR"
ROLES_LABEL = "longshore/roles"
"""Label of a node (``ray start --labels``) that names its roles, joined by dots."""


class NodesMissingError(InfraError):
    """The cluster did not reach the wanted size in time."""


class RayStartError(InfraError):
    """Ray did not start on this machine."""


class NodeRole(StrEnum):
    """A role of a node.  The learner, buffer and scheduler are always on the driver's node."""

    ENGINE = "engine"
    WORKER = "worker"
    """Rollout workers, with their sandboxes."""


ALL_ROLES = frozenset(NodeRole)


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """``name`` for people (``node-0`` is the head), ``ray_id`` for placement."""

    name: str
    ray_id: str
    address: str
    gpus: int = 0
    cpus: int = 0
    remote: bool = False
    """Whether it is on another machine than the driver's."""
    roles: frozenset[NodeRole] = ALL_ROLES
    """Roles that it may fill."""
    labelled_roles: frozenset[NodeRole] = field(default_factory=frozenset[NodeRole])
    """The roles that its label names; empty without a label."""


@asynccontextmanager
async def start_local_nodes(count: int, temporary: Path, cpus: int = 64) -> AsyncGenerator[list[ClusterNode]]:
    """Start ``count`` Ray nodes on this machine.  ``cpus`` is nominal: it only limits how many actors fit on a node.

    Raises RayStartError.
    """
    with isolate_default_address(temporary):
        async with temporary_resource(
            lambda: asyncio.to_thread(_start_connected, count, temporary, cpus),
            lambda cluster: asyncio.to_thread(_end, cluster),
        ):
            _keep_terminable()
            yield await _wait_alive(count, _LOCAL_WAIT_S, lambda _: None, "this machine may be too busy for so many")


def _start_connected(count: int, temporary: Path, cpus: int) -> Any:
    cluster = start_ray_cluster(count, temporary, cpus)
    try:
        connect_to_cluster(str(cluster.address))
    except BaseException:
        _end(cluster)
        raise
    return cluster


def _end(cluster: Any) -> None:
    disconnect_from_cluster()
    cluster.shutdown()


def start_ray_cluster(count: int, temporary: Path, cpus: int) -> Any:
    """Start a Ray cluster, if need be at a later attempt: Ray allows a node 30 s, which a busy machine may exceed."""
    for attempts_left in reversed(range(_START_ATTEMPTS)):
        try:
            return _start_once(count, temporary, cpus)
        except _NotUp as error:
            if not attempts_left:
                why = " ".join(str(error.__cause__).split())
                raise RayStartError(
                    f"Ray did not start on this machine in {_START_ATTEMPTS} attempts ({why}). If the machine is busy "
                    "or short of memory, end what else runs here (`top` shows it) or ask for fewer --nodes; if a path "
                    "is too long, set TMPDIR to a short one"
                ) from error
    raise AssertionError("unreachable")


class _NotUp(Exception):
    """One attempt failed, and nothing of it is left."""


def _start_once(count: int, temporary: Path, cpus: int) -> Any:
    from ray import cluster_utils

    untyped: Any = cluster_utils
    cluster = untyped.Cluster(initialize_head=False, shutdown_at_exit=False)
    try:
        cluster.add_node(temp_dir=str(_session_folder(temporary)), **_node_options(cpus))
        for _ in range(count - 1):
            cluster.add_node(wait=False, **_node_options(cpus) | {"num_gpus": 0})  # the head has the machine's GPUs
    except Exception as error:  # Ray raises the bare class for a node that is late
        for pid in _processes(temporary):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise _NotUp from error
    return cluster


def _session_folder(temporary: Path) -> Path:
    """Return the folder of Ray's sessions, which Ray opens to all; only ``temporary``, with mode 0700, is private."""
    return temporary / "ray"


def _processes(temporary: Path) -> list[int]:
    """Return Ray's processes of the sessions in ``temporary``, including those of a node that Ray gave up.  Each has
    its session's folder on its command line."""
    marker, found = f"{_session_folder(temporary)}/session_".encode(), list[int]()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def ray_head_processes(temporary: Path) -> list[int]:
    """Return the processes of Ray's session in ``temporary`` without which there is no cluster or no driver node."""
    found: list[int] = []
    for pid in _processes(temporary):
        with contextlib.suppress(OSError):
            program, *options = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if program.endswith(b"/gcs_server") or (program.endswith(b"/raylet") and b"--head" in options):
                found.append(pid)
    return found


@contextmanager
def isolate_default_address(temporary: Path) -> Generator[None]:
    """Let Ray's test cluster write its address to ``temporary`` instead of the place where every other ``ray.init()``
    on this machine looks for a cluster to join."""
    before = os.environ.get(_DEFAULT_FOLDER)
    _session_folder(temporary).mkdir(parents=True, exist_ok=True)
    os.environ[_DEFAULT_FOLDER] = str(temporary)
    try:
        yield
    finally:
        del os.environ[_DEFAULT_FOLDER]
        if before is not None:
            os.environ[_DEFAULT_FOLDER] = before


def _node_options(cpus: int) -> dict[str, Any]:
    return {
        "num_cpus": cpus,
        "num_gpus": None,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
    }


@asynccontextmanager
async def join_cluster_nodes(
    address: str, count: int, wait_s: float, env: Mapping[str, str], progress: Callable[[int], None]
) -> AsyncGenerator[list[ClusterNode]]:
    """Join the cluster at ``address`` and wait until ``count`` nodes are alive; ``progress`` is called with their
    number whenever it changes.  ``env`` is set for every actor that is started from then on.

    Raises NodesMissingError after ``wait_s``, UserError for an unknown role in a label.
    """

    await asyncio.to_thread(connect_to_cluster, address, dict(env))
    _keep_terminable()
    try:
        yield await _wait_alive(count, wait_s, progress, "start the others with `ray start --address=HEAD:6379`")
    finally:
        await asyncio.to_thread(disconnect_from_cluster)


def connect_to_cluster(address: str, env: dict[str, str] | None = None) -> None:
    """Connect this process to the cluster at ``address``; the actors that it starts get ``env``."""
    import ray

    runtime_env = {"env_vars": env} if env else None
    ray.init(address=address, runtime_env=runtime_env, logging_level=logging.ERROR, log_to_driver=False)  # pyright: ignore[reportUnknownMemberType]  # untyped


def _keep_terminable() -> None:
    """Put back Python's handler for SIGTERM: Ray's core replaces it with one that ends the process 3 s later."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def disconnect_from_cluster() -> None:
    """End this process's connection to its cluster."""
    import ray

    ray.shutdown()  # pyright: ignore[reportUnknownMemberType]  # untyped


def query_nodes() -> list[dict[str, Any]]:
    """Return Ray's own list of the cluster's nodes, dead ones too."""
    import ray

    return list(ray.nodes())  # pyright: ignore[reportUnknownArgumentType]  # untyped


def list_alive_nodes() -> list[RayNode]:
    """Return the nodes that Ray lists as alive.  Blocks, and for long if the cluster is lost."""
    return [_read(node) for node in query_nodes() if node["Alive"]]


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node as Ray lists it."""

    ray_id: str
    address: str
    gpus: int
    cpus: int
    roles: str
    """Value of its roles label; empty without one."""


def _read(node: Mapping[str, Any]) -> RayNode:
    resources: Mapping[str, float] = node["Resources"]
    labels: Mapping[str, str] = node.get("Labels") or {}
    return RayNode(
        str(node["NodeID"]),
        str(node["NodeManagerAddress"]),
        int(resources.get("GPU", 0)),
        int(resources.get("CPU", 0)),
        labels.get(ROLES_LABEL, ""),
    )


def make_cluster_node(node: RayNode, number: int, *, head: str) -> ClusterNode:
    """Return the node as number ``number`` of a run whose driver's machine has the address ``head``.  Raises UserError
    for an unknown role in its label."""
    labelled = _parse_roles_label(node)
    return ClusterNode(
        f"node-{number}",
        node.ray_id,
        node.address,
        node.gpus,
        node.cpus,
        remote=node.address != head,
        roles=labelled or ALL_ROLES,
        labelled_roles=labelled,
    )


def _parse_roles_label(node: RayNode) -> frozenset[NodeRole]:
    words = [word for word in node.roles.split(".") if word]
    for word in words:
        if word not in set(NodeRole):
            raise UserError(
                f"the node at {node.address} has the label {ROLES_LABEL}={node.roles}, and '{word}' is not a role"
                f"{did_you_mean(word, list(NodeRole))}: start it with --labels "
                f"{ROLES_LABEL}={'.'.join(NodeRole)}, with one of "
                "the two, or without a label"
            )
    return frozenset(map(NodeRole, words))


async def _wait_alive(count: int, wait_s: float, progress: Callable[[int], None], advice: str) -> list[ClusterNode]:
    alive: list[RayNode] = []
    try:
        async with asyncio.timeout(wait_s):
            while True:
                before, alive = len(alive), await asyncio.to_thread(list_alive_nodes)
                if len(alive) != before:
                    progress(len(alive))
                nodes = _ordered(alive)[:count]
                if len(nodes) == count:
                    return [make_cluster_node(node, number, head=nodes[0].address) for number, node in enumerate(nodes)]
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise NodesMissingError(
            f"{len(alive)} of {count} nodes were alive after {wait_s:g} s: {advice}, or ask for fewer with --nodes"
        ) from error


def _ordered(alive: Sequence[RayNode]) -> list[RayNode]:
    """Return this process's node first, then others of its machine."""
    import ray

    mine = ray.get_runtime_context().get_node_id()
    here = {node.address for node in alive if node.ray_id == mine}
    return sorted(alive, key=lambda node: (node.ray_id != mine, node.address not in here, node.ray_id))
