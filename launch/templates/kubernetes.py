"""Renders a RayJob for KubeRay (1.5.1 or newer): the learner on Ray's head, engines on GPU nodes, and agents on nodes
with a Docker engine of their own.

KubeRay creates Ray's token and passes it to every pod.  The run's directory is on a volume claim, so a restarted job
resumes the run; without a claim it is lost with the pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import yaml

from launch.hosts.cluster_nodes import ROLES_LABEL, NodeRole
from launch.hosts.ray_environment import CLUSTER_RAY_ENVIRONMENT
from launch.templates.job import ClusterJob
from protocol.events import JsonValue

Manifest: TypeAlias = dict[str, JsonValue]

_RUNS, _HOME, _SOCKETS = "/runs", "/var/lib/longshore", "/var/run/longshore"
_DOCKER = "docker:28-dind"
_SHM_SHARE = 4
"""Pod memory ÷ shared memory, into which weights are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A number of equal nodes."""

    count: int
    cpus: int
    memory_gb: int
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob:
    job: ClusterJob
    image: str
    """Image with a ``python`` in which longshore is installed."""
    ray_version: str
    head: PodGroup
    engines: PodGroup
    agents: PodGroup
    claim: str
    """Name of the volume claim that holds runs; empty for none."""
    base_image: str
    """Default image of tasks."""
    docker: bool
    """Whether agent pods have a Docker engine; otherwise sandboxes come from pool servers."""

    @property
    def nodes(self) -> int:
        return 1 + self.engines.count + self.agents.count


def render_kubernetes(wanted: KubernetesJob) -> str:
    return yaml.dump(make_manifest(wanted), Dumper=_NoAliasDumper, sort_keys=False, width=120)


class _NoAliasDumper(yaml.SafeDumper):
    """Writes repeated values in full instead of as aliases."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def make_manifest(wanted: KubernetesJob) -> Manifest:
    groups = [_group("engines", NodeRole.ENGINE, wanted.engines, wanted, docker=False)] if wanted.engines.count else []
    if wanted.agents.count:
        groups.append(_group("agents", NodeRole.WORKER, wanted.agents, wanted, docker=wanted.docker))
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": wanted.job.name},
        "spec": {
            "entrypoint": _entrypoint(wanted),
            "shutdownAfterJobFinishes": True,
            "backoffLimit": 2 if wanted.claim else 0,
            "rayClusterSpec": {
                "rayVersion": wanted.ray_version,
                "authOptions": {"mode": "token"},
                "headGroupSpec": {
                    "rayStartParams": {},
                    "template": {"spec": _Pod("ray-head", wanted.head, wanted).with_runs().spec()},
                },
                "workerGroupSpecs": [*groups],
            },
        },
    }


def _entrypoint(wanted: KubernetesJob) -> str:
    """Return the entrypoint without shell syntax: KubeRay passes it through several shells."""
    start = wanted.job.command(runs=_RUNS, run=wanted.job.name, nodes=wanted.nodes)
    return start if wanted.docker else f"{start} --set sandbox.provider=pool"


def _group(name: str, role: NodeRole, pods: PodGroup, wanted: KubernetesJob, *, docker: bool) -> Manifest:
    pod = _Pod("ray-worker", pods, wanted)
    return {
        "groupName": name,
        "replicas": pods.count,
        "minReplicas": pods.count,
        "maxReplicas": pods.count,
        "labels": {ROLES_LABEL: role.value},
        "rayStartParams": {},
        "template": {"spec": (pod.with_docker() if docker else pod).spec()},
    }


@dataclass(frozen=True, slots=True)
class _Pod:
    """One Ray node and its side containers."""

    container: str
    pods: PodGroup
    wanted: KubernetesJob
    env: tuple[tuple[str, str], ...] = (*CLUSTER_RAY_ENVIRONMENT.items(), ("RAY_USAGE_STATS_ENABLED", "0"))
    mounts: tuple[tuple[str, str], ...] = (("shm", "/dev/shm"),)  # noqa: S108  where the pod's shared memory is
    volumes: tuple[tuple[str, Manifest], ...] = ()
    before: tuple[Manifest, ...] = ()
    """Containers that start before it."""

    def with_runs(self) -> _Pod:
        claim = self.wanted.claim
        volume: Manifest = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        return replace(self, mounts=(*self.mounts, ("runs", _RUNS)), volumes=(*self.volumes, ("runs", volume)))

    def with_docker(self) -> _Pod:
        """Add a Docker engine whose containers see the toolchain of the node's container at the same path."""
        env = (
            ("DOCKER_HOST", f"unix://{_SOCKETS}/docker.sock"),
            ("LONGSHORE_HOME", _HOME),
            ("LONGSHORE_BASE_IMAGE", self.wanted.base_image),
        )
        mounts = (("sockets", _SOCKETS), ("home", _HOME))
        engine: Manifest = {
            "name": "docker",
            "image": _DOCKER,
            "restartPolicy": "Always",
            "args": ["dockerd", f"--host=unix://{_SOCKETS}/docker.sock"],
            "securityContext": {"privileged": True},
            "startupProbe": {
                "exec": {"command": ["docker", "--host", f"unix://{_SOCKETS}/docker.sock", "info"]},
                "periodSeconds": 2,
                "failureThreshold": 60,
            },
            "volumeMounts": _mounts((*mounts, ("layers", "/var/lib/docker"))),
        }
        set_up: Manifest = {
            "name": "sandboxes",
            "image": self.wanted.image,
            "command": ["python", "-m", "sandbox.host", "up"],
            "env": _env(env),
            "volumeMounts": _mounts(mounts),
        }
        empty: Manifest = {"emptyDir": {}}
        return replace(
            self,
            env=(*self.env, *env),
            mounts=(*self.mounts, *mounts),
            volumes=(*self.volumes, *((name, empty) for name in ("sockets", "home", "layers"))),
            before=(engine, set_up),
        )

    def spec(self) -> Manifest:
        pods = self.pods
        size: Manifest = {"cpu": str(pods.cpus), "memory": f"{pods.memory_gb}Gi"}
        if pods.gpus:
            size["nvidia.com/gpu"] = str(pods.gpus)
        shm: Manifest = {"emptyDir": {"medium": "Memory", "sizeLimit": f"{max(1, pods.memory_gb // _SHM_SHARE)}Gi"}}
        volumes = (("shm", shm), *self.volumes)
        node: Manifest = {
            "name": self.container,
            "image": self.wanted.image,
            "env": _env(self.env),
            "resources": {"requests": size, "limits": size},
            "volumeMounts": _mounts(self.mounts),
        }
        before: Manifest = {"initContainers": [*self.before]} if self.before else {}
        spec: Manifest = {
            "containers": [node],
            "volumes": [{"name": name, **source} for name, source in volumes],
        }
        return before | spec


def _env(pairs: Iterable[tuple[str, str]]) -> JsonValue:
    return [{"name": name, "value": value} for name, value in pairs]


def _mounts(pairs: Iterable[tuple[str, str]]) -> JsonValue:
    return [{"name": name, "mountPath": path} for name, path in pairs]
