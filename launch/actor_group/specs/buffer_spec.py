"""The spec of the run's buffer, and the keys of those who may send to it."""

from __future__ import annotations

from collections.abc import Iterable

from actors.buffer.settings import BufferSpec
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.run_directory import RunDirectory
from protocol.processes.loopback import find_free_port, is_loopback
from protocol.stream import RunKeys, make_run_keys


def buffer_spec(config: RunConfig, directory: RunDirectory, head: ClusterNode, keys: RunKeys | None) -> BufferSpec:
    """Return the spec of the buffer on ``head``; it has a port before it starts, so that a restart keeps it."""
    return BufferSpec(
        settings=config.buffer.model_copy(update={"port": config.buffer.port or find_free_port()}),
        run_dir=directory.path,
        run_id=directory.run_id,
        host=head.address,
        curve=keys.server if keys is not None else None,
        disk_floor_bytes=config.run.disk_reserve_mb << 20,
        dynamic_sampling=config.dynamic_sampling,
        node=head.name,
    )


def make_sender_keys(head: ClusterNode, workers: Iterable[str]) -> RunKeys | None:
    """Return keys for the buffer and these workers; None if only this machine can reach the buffer.

    Each start of a run has new keys, so that processes left over from an earlier one are refused."""
    return None if is_loopback(head.address) else make_run_keys(workers)
