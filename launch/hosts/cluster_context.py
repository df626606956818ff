"""Facts about the cluster that a run's nodes belong to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launch.hosts.node_requirements import NodeRequirements


@dataclass(frozen=True, slots=True)
class ClusterContext:
    own_processes: tuple[int, ...] = ()
    """Process ids of Ray on the head, if the run started it."""
    node_requirements: NodeRequirements | None = None
    """Requirements for a node that joins; None if the nodes were started here, so that none joins."""
    has_docker: bool = True
    """Whether the driver's machine has a Docker engine."""

    private_folder: Path | None = None
    """Folder for sockets that only this account can enter, if all nodes are on the driver's machine; else None."""

    @property
    def is_joined(self) -> bool:
        """Whether others may use the cluster too."""
        return self.node_requirements is not None


LOCAL_CLUSTER = ClusterContext()
