"""A rollout worker's settings: its part of ``[rollout]``, and the spec of one worker.

Imports nothing heavy, because the configuration imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actors.agents.settings import AgentSpec
from actors.rewards.settings import RewardSpec
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.rollout.stages import StageDeadlines
from actors.rollout.terminal import TerminalLimits
from actors.workers.provider_spec import ProviderSpec
from protocol.errors import UserError
from protocol.settings import ConfigSection, PositiveInt, Seconds

if TYPE_CHECKING:
    from protocol.stream import CurveClient
    from sandbox.pool.settings import PoolSettings


class WorkerSettings(ConfigSection):
    """Number of workers and episodes, and the deadlines of an episode."""

    workers_per_node: PositiveInt = 1
    """Number of rollout workers on each node."""
    episodes_per_worker: PositiveInt = 16
    """Number of episodes that one worker runs at once; simulated nodes share the episodes of one node."""
    episode_deadline_s: Seconds = 600.0
    """Wall-clock limit of one episode, waiting included; exceeding it is an infrastructure failure, not the agent's."""
    send_deadline_s: Seconds = 600.0
    """Longest wait for the buffer to acknowledge a trajectory after its episode."""
    acquire_timeout_s: Seconds = 120.0
    """Longest wait for a sandbox, including its start and its task's set-up."""
    cleanup_timeout_s: Seconds = 15.0
    """Longest wait for the removal of the sandbox after an episode; a slower removal continues in the background."""

    def episodes_per_worker_of(self, nodes: int) -> int:
        """Return the number of concurrent episodes of each worker if ``nodes`` nodes share one machine's containers.

        Raises UserError if that is below 1."""
        if nodes > self.episodes_per_worker:
            raise UserError(
                f"{nodes} nodes on one machine share rollout.episodes_per_worker = {self.episodes_per_worker}, which "
                f"is less than one each: raise it to {nodes} (and sandbox.capacity_per_node to "
                f"{nodes * self.workers_per_node}), or ask for fewer --nodes"
            )
        return self.episodes_per_worker // nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Everything that one worker is configured with."""

    name: str
    node: str
    run_id: str
    run_dir: Path
    model_path: str
    """Folder with the tokenizer."""
    endpoint: str
    """Address of the buffer's receiver."""
    curve: CurveClient | None
    """Keys of that connection; None for a Unix socket."""
    episodes: int
    """Number of concurrent episodes."""
    limits: WorkerSettings
    agent: AgentSpec
    harness: HarnessSettings
    """The harness that replaces the agent, if its command is set."""
    episode: EpisodeSettings
    reward: RewardSpec
    reply_timeout_s: float
    """Longest wait for one reply of an engine."""
    restart_timeout_s: float
    """Longest additional wait of one reply for an engine that restarts."""
    command_timeout_s: float
    grade_timeout_s: float
    pool: PoolSettings
    """Settings of the worker's own sandboxes."""
    provider: ProviderSpec | None = None
    """A provider of sandboxes in place of the worker's own pool."""
    max_versions_behind: int = 0
    """Number of versions behind the newest engine above which an engine is used last; 0 for no such limit.  It is
    that of the start: a retuned ``learner.publish_every`` does not change it."""
    online_evaluation: bool = False
    """Whether the worker runs only online evaluations (:mod:`actors.scheduler.evaluation.plan`)."""

    @property
    def terminal_limits(self) -> TerminalLimits:
        """The limits of an episode's use of its sandbox."""
        return TerminalLimits(
            self.limits.acquire_timeout_s,
            self.command_timeout_s,
            self.grade_timeout_s,
            self.limits.cleanup_timeout_s,
            self.episode.observation_chars,
        )

    def stage_deadlines(self, begun: float) -> StageDeadlines:
        """Return the deadlines of an episode that began at ``begun`` on the event loop's clock."""
        return StageDeadlines.for_episode(
            begun,
            self.limits.episode_deadline_s,
            evaluate_s=self.grade_timeout_s,
            after_s=self.reward.judge_s + self.limits.cleanup_timeout_s,
        )
