"""What a run needs of one machine, as far as a check can hold the machine against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launch.config import RunConfig, SftConfig


@dataclass(frozen=True, slots=True)
class HostRequirements:
    """Of the machine that the checks run on; plain values, so that they can be sent to it."""

    folder: Path
    """Where runs go, or what a run has on another machine than its head."""
    reserve_mb: int
    """Room that has to be left there."""
    ports: tuple[tuple[str, int], ...] = ()
    """(key of the configuration, port) that are listened on here; 0 is any."""
    folder_key: str = "run.dir"
    """That says so."""
    docker: bool = True
    """Sandboxes are containers of this machine."""
    image: str = ""
    """Of tasks that name none; empty for the base image."""
    harness: bool = False
    """The agent is a program in a sandbox, to which a door to the policy is opened."""
    containers: int = 0
    """Most of them at once."""
    nodes: int = 1
    """Ray nodes on this machine."""
    machines: int = 1
    """Of the whole run."""
    buffer: bool = True
    """The journal is on this machine's disk."""
    gpu_keys: tuple[str, ...] = ()
    """Keys that put something on a GPU of this machine."""
    gpus: int = 0
    """How many they need; 0 where that is not known."""
    gpu_alternative: str = ""
    """What else somebody without a GPU may do."""


def host_requirements(config: RunConfig) -> HostRequirements:
    """Of the machine on which ``config`` is started: all there is, or the head of a cluster, of which nothing is asked
    here that :func:`wants_of_node` asks of each of its nodes."""
    joins, learner, engine = bool(config.cluster.address), config.learner, config.engine
    devices = {"learner.device": learner.device, "engine.device": engine.device}
    here = 1 if joins else config.cluster.nodes
    monitor = config.monitor.port if config.monitor.enabled else 0
    metrics = config.metrics.port if config.metrics.prometheus else 0
    return HostRequirements(
        folder=config.run.dir.absolute(),
        reserve_mb=config.run.disk_reserve_mb,
        ports=(("monitor.port", monitor), ("buffer.port", config.buffer.port), ("metrics.port", metrics)),
        docker=config.sandbox.uses_worker_pools and not joins,
        image=config.sandbox.image,
        harness=bool(config.agent.harness) and not joins,
        containers=0 if joins else _containers(config),
        nodes=here,
        machines=config.cluster.nodes if joins else 1,
        gpu_keys=() if joins else tuple(key for key, device in devices.items() if device == "cuda"),
        gpus=0 if joins else count_gpus(config),
        gpu_alternative=", or join a cluster that has one (--address HOST:PORT)",
    )


def node_host_requirements(config: RunConfig) -> HostRequirements:
    """Of each node of a cluster that the run of ``config`` joins, whatever is put there."""
    return HostRequirements(
        folder=config.cluster.scratch_dir.absolute(),
        reserve_mb=config.run.disk_reserve_mb,
        folder_key="cluster.scratch_dir",
        docker=config.sandbox.uses_worker_pools,
        image=config.sandbox.image,
        harness=bool(config.agent.harness),
        containers=_containers(config),
        machines=config.cluster.nodes,
        buffer=False,
        gpu_keys=("engine.device",) if config.engine.device == "cuda" else (),
    )


def _containers(config: RunConfig) -> int:
    """Sandboxes that may be there at once, on one machine."""
    rollout, beside = config.rollout, config.online_evaluation_slots if config.evaluation.every_steps else 0
    return rollout.workers_per_node * rollout.episodes_per_worker + beside if config.sandbox.uses_worker_pools else 0


def sft_host_requirements(config: SftConfig) -> HostRequirements:
    """Of supervised training, which has neither sandboxes nor a journal."""
    cuda = config.learner.device == "cuda"
    return HostRequirements(
        folder=config.run.dir.absolute(),
        reserve_mb=config.run.disk_reserve_mb,
        docker=False,
        buffer=False,
        gpu_keys=("learner.device",) if cuda else (),
        gpus=config.learner.ranks if cuda else 0,
    )


def count_gpus(config: RunConfig) -> int:
    """GPUs that the whole run has for itself."""
    learner = config.learner.ranks if config.learner.device == "cuda" else 0
    if config.colocated:
        return learner
    sender = int(config.engine.broadcast_device == "cuda")
    engines = config.engine.count + (config.evaluation.every_steps > 0)  # one for evaluations beside training
    return learner + sender + (engines * config.engine.tp if config.engine.device == "cuda" else 0)
