"""The spec of the run's buffer."""

from __future__ import annotations

from pathlib import Path

from actors.buffer.settings import BufferSpec
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from protocol.processes.loopback import find_free_port
from protocol.stream import RunKeys
from protocol.usability import TrajectoryLimits


def buffer_spec(
    config: RunConfig, directory: RunDirectory, limits: TrajectoryLimits, head: ClusterNode, guard: RunKeys | Path
) -> BufferSpec:
    """Return the spec of the buffer on ``head``, guarded by keys or by a private folder; it has an address before it
    starts, so that a restart keeps it."""
    return BufferSpec(
        settings=config.buffer.model_copy(update={"port": config.buffer.port or find_free_port()}),
        run_dir=directory.path,
        run_id=directory.run_id,
        host=head.address,
        unix_socket=guard / "buffer" if isinstance(guard, Path) else None,
        curve=None if isinstance(guard, Path) else guard.server,
        limits=limits,
        disk_floor_bytes=config.run.disk_reserve_mb << 20,
        dynamic_sampling=config.dynamic_sampling,
        node=head.name,
    )
