"""Settings of the cluster: ``[cluster]``."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from pydantic import field_validator

from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds

OBJECT_STORE_BYTES = 80 << 20
"""Size of a Ray node's object store."""


class DevicePlacement(StrEnum):
    """Assignment of devices to learner and engines."""

    SEPARATE = "separate"
    """Each has a device of its own; they compute at the same time."""
    COLOCATED = "colocated"
    """They alternate on one device: rollout until a batch is ready, a step, new weights, rollout again."""


class ClusterSettings(ConfigSection):
    nodes: PositiveInt = 1
    """Number of Ray nodes.  Without ``cluster.address`` they are simulated on this machine."""
    placement: DevicePlacement = DevicePlacement.SEPARATE
    """Learner and engine compute on GPUs of their own (``separate``), or share one (``colocated``): then each offloads
    its memory while the other computes, rollout stands still meanwhile, and the run reports for how long."""
    address: str = ""
    """Ray cluster to join, ``host:port``; empty to start one here."""
    node_wait_s: Seconds = 600.0
    """Longest wait, in seconds, until the cluster has that many nodes alive."""
    max_nodes: CountInt = 0
    """Maximum number of nodes: one that joins later gets workers while the run has fewer.  0 for ``nodes``: then a node
    that joins only replaces one that has died."""
    scratch_dir: Path = Path("/tmp/longshore")  # noqa: S108  a name for each run below it
    """Folder on the other machines, on a local disk, for copies of weights and for files that wait to be synced to the
    driver."""

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        if address and not re.fullmatch(r"\S+:\d+", address):
            raise ValueError(
                f"cluster.address = {address!r} is not host:port: write it as, for example, --address 10.0.0.1:6379"
            )
        return address
