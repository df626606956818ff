"""A rollout worker's settings: its part of ``[rollout]``.

Light: the configuration imports it.
"""

from __future__ import annotations

from protocol.errors import UserError
from protocol.settings import ConfigSection, PositiveInt, Seconds


class WorkerSettings(ConfigSection):
    """How many episodes workers run, and the deadlines around each."""

    workers_per_node: PositiveInt = 1
    """Rollout processes on each node."""
    episodes_per_worker: PositiveInt = 16
    """Episodes that one worker runs at the same time; simulated nodes share those of one node."""
    episode_deadline_s: Seconds = 600.0
    """Wall-clock limit of one episode, waiting included; exceeding it is an infrastructure failure, not the agent's."""
    send_deadline_s: Seconds = 600.0
    """Longest wait for the buffer to acknowledge a trajectory after its episode."""
    acquire_timeout_s: Seconds = 120.0
    """Longest wait for a sandbox, its start and its task's set-up included."""
    cleanup_timeout_s: Seconds = 15.0
    """Longest wait for the sandbox to be removed after an episode; a slower one keeps ending by itself."""

    def episodes_per_worker_of(self, nodes: int) -> int:
        """Return the episodes at once of each worker if ``nodes`` nodes share one machine, and so its containers.

        Raises UserError if that is less than one for each."""
        if nodes > self.episodes_per_worker:
            raise UserError(
                f"{nodes} nodes on one machine share rollout.episodes_per_worker = {self.episodes_per_worker}, which is "
                f"less than one each: raise it to {nodes} (and sandbox.capacity_per_node to "
                f"{nodes * self.workers_per_node}), or ask for fewer --nodes"
            )
        return self.episodes_per_worker // nodes
