"""Requirements of a run on one machine, as far as checks can test them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.agents.settings import ToolsetKind
from launch.config import RunConfig, SftConfig
from sandbox.tasks.network_policy import DEFAULT_NETWORK_POLICY, NetworkPolicy


@dataclass(frozen=True, slots=True)
class HostRequirements:
    """Requirements on the machine that runs the checks; plain values that can be sent to it."""

    folder: Path
    """Folder of runs, or the scratch folder on machines other than the head."""
    reserve_mb: int
    """Megabytes that must stay free there."""
    ports: tuple[tuple[str, int], ...] = ()
    """(configuration key, port) of listening sockets; 0 for any port."""
    folder_key: str = "run.dir"
    """Configuration key of ``folder``."""
    docker: bool = True
    """Whether sandboxes are containers on this machine."""
    network: NetworkPolicy = DEFAULT_NETWORK_POLICY
    """Network of agents and tests."""
    image: str = ""
    """Image of tasks without one of their own; empty for the base image."""
    harness: bool = False
    """Whether the agent is a program in the sandbox, which needs a socket there to reach the policy."""
    published_harness: str = ""
    """Name of the published harness that is mounted into the sandboxes; empty for none."""
    browser: bool = False
    """True if the agent's browser is mounted into the sandboxes."""
    containers: int = 0
    """Maximum number of sandboxes at once."""
    nodes: int = 1
    """Number of Ray nodes on this machine."""
    machines: int = 1
    """Number of machines of the whole run."""
    buffer: bool = True
    """Whether the journal is on this machine's disk."""
    gpu_keys: tuple[str, ...] = ()
    """Configuration keys that put something on a GPU of this machine."""
    gpus: int = 0
    """Number of GPUs that they need; 0 if unknown."""
    gpu_alternative: str = ""
    """Advice for a machine without a GPU, appended to the fix."""


def host_requirements(config: RunConfig) -> HostRequirements:
    """Return the requirements on the machine that starts the run.

    If the run joins a cluster, those on every node are left to :func:`node_host_requirements`."""
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
        network=config.sandbox.network,
        image=config.sandbox.image,
        harness=bool(config.agent.harness) and config.sandbox.uses_worker_pools and not joins,
        published_harness=_published_harness(config),
        browser=config.agent.toolset is ToolsetKind.BROWSER,
        containers=0 if joins else _containers(config),
        nodes=here,
        machines=config.cluster.nodes if joins else 1,
        gpu_keys=() if joins else tuple(key for key, device in devices.items() if device == "cuda"),
        gpus=0 if joins else count_gpus(config),
        gpu_alternative=", or join a cluster that has one (--address HOST:PORT)",
    )


def node_host_requirements(config: RunConfig) -> HostRequirements:
    """Return the requirements on each node of a cluster that the run joins."""
    return HostRequirements(
        folder=config.cluster.scratch_dir.absolute(),
        reserve_mb=config.run.disk_reserve_mb,
        folder_key="cluster.scratch_dir",
        docker=config.sandbox.uses_worker_pools,
        network=config.sandbox.network,
        image=config.sandbox.image,
        harness=bool(config.agent.harness) and config.sandbox.uses_worker_pools,
        published_harness=_published_harness(config),
        browser=config.agent.toolset is ToolsetKind.BROWSER,
        containers=_containers(config),
        machines=config.cluster.nodes,
        buffer=False,
        gpu_keys=("engine.device",) if config.engine.device == "cuda" else (),
    )


def _published_harness(config: RunConfig) -> str:
    return config.agent.harness if config.sandbox.uses_worker_pools and config.agent.published_harness else ""


def _containers(config: RunConfig) -> int:
    """Return the maximum number of sandboxes at once on one machine."""
    if not config.sandbox.uses_worker_pools:
        return 0
    evaluation_slots = config.online_evaluation_slots if config.evaluation.every_steps else 0
    return config.rollout.workers_per_node * config.rollout.episodes_per_worker + evaluation_slots


def sft_host_requirements(config: SftConfig) -> HostRequirements:
    """Return the requirements of supervised training, which has neither sandboxes nor a journal."""
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
    """Return the number of GPUs that the whole run occupies."""
    learner = config.learner.ranks if config.learner.device == "cuda" else 0
    judge = config.judge.own_engines * config.judge.tp if config.engine.device == "cuda" else 0
    if config.colocated:
        return learner + judge
    sender = int(config.engine.broadcast_device == "cuda")
    engines = config.engine.count + (config.evaluation.every_steps > 0)  # one for online evaluations
    return learner + sender + (engines * config.engine.tp if config.engine.device == "cuda" else 0) + judge
