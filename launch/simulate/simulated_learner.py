"""The simulated learner: the training loop with the real journal and staleness rules, in which a step only takes
time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from actors.scheduler.core import SchedulerCore
from actors.scheduler.settings import SchedulerRunState, SchedulerSettings
from launch.simulate.simulated_engines import SimulatedEngine, total_idle_s
from launch.simulate.simulated_rollout import SimulatedEpisode, SimulatedRollout
from launch.simulate.token_accounting import ConsumedTrajectory, TokenAccounting
from launch.simulate.virtual_clock import VirtualClock
from launch.training.batch_fill import BatchFill
from protocol.journal import BatchLease, Journal
from protocol.staleness import StaleTokenPolicy, may_take_step, staleness_loss_mask
from protocol.trajectory import DropReason
from protocol.weights import NO_VERSION, Lineage, WeightVersion, make_version


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLearnerSettings:
    groups_per_step: int
    group_size: int
    max_staleness: int
    unbounded: bool
    policy: StaleTokenPolicy
    publish_every: int
    checkpoint_every: int
    steps: int
    step_s: Callable[[int], float]
    """Returns the duration of step n, publication included."""
    push_s: float
    pause_s: float


class SimulatedLearner:
    def __init__(
        self,
        clock: VirtualClock,
        settings: SimulatedLearnerSettings,
        *,
        journal: Journal,
        scheduler: SchedulerCore,
        engines: Sequence[SimulatedEngine],
        account: TokenAccounting,
    ) -> None:
        self._clock, self._settings, self._journal, self._scheduler = clock, settings, journal, scheduler
        self._engines, self._account = engines, account
        self.step = 0
        self.served_version = NO_VERSION
        """Newest published version, which a restarted engine serves."""
        self._version, self._lineage, self._count = NO_VERSION, Lineage(), 0
        self._stepping = False
        self._waiting_since = 0.0
        # Without a bound only the capacity limits rollout.
        unbounded = SchedulerSettings(max_steps_ahead=settings.max_staleness).tuning(
            publish_every=settings.publish_every
        )
        self._run_state = SchedulerRunState(training=True, tuning=unbounded if settings.unbounded else None)
        self._steps_s: list[float] = []
        self._fill = BatchFill(settings.groups_per_step, settings.group_size)

    def start(self, rollout: SimulatedRollout) -> None:
        self._rollout = rollout
        self._add_version()
        self.served_version = self._version
        for engine in self._engines:
            engine.version = self._version
        self._set_run_state(self._run_state)

    def step_if_ready(self) -> None:
        """Take a step if there is a batch and the staleness policy allows it."""
        settings = self._settings
        if self._stepping or self._scheduler.groups.ready_groups < self._fill.groups_to_lease:
            return
        lease = self._journal.lease_batch(self._fill.groups_to_lease)
        if lease is None or not self._may_step(lease):
            return
        self._stepping = True
        self._account.add_wait(self._clock.now - self._waiting_since)
        seconds = settings.step_s(self.step + 1)
        self._steps_s.append(seconds)
        self._clock.schedule(seconds, self._finish_step, lease)

    def _may_step(self, lease: BatchLease) -> bool:
        if self._settings.policy is not StaleTokenPolicy.WAIT:
            return True
        oldest = self._scheduler.groups.staleness.oldest_running_step(
            self.step, [group.group for group in lease.groups]
        )
        return may_take_step(self.step, oldest, self._settings.max_staleness)

    def _finish_step(self, lease: BatchLease) -> None:
        settings, now = self._settings, self._clock.now
        staleness: dict[int, int] = {}
        consumed = [self._consume(self._rollout.arrived.pop(name), staleness) for name in lease.trajectory_ids]
        trained = [name for name, use in zip(lease.trajectory_ids, consumed, strict=True) if use.trained]
        dropped = {
            name: DropReason.ALL_STALE
            for name, use in zip(lease.trajectory_ids, consumed, strict=True)
            if not use.trained
        }
        self._journal.mark_trained(self.step + 1, trained, dropped)
        self._stepping, self._waiting_since = False, now
        if trained:
            self.step += 1
            self._fill.record_step(len(dropped))
            ready = self._scheduler.groups.ready_groups - len(lease.groups)
            self._account.end_step(self.step, now, consumed, self._rollout.in_flight, ready)
            if self.step == self._account.warm_up:
                self._account.end_warm_up(total_idle_s(self._engines), self._journal.accounting().dropped)
            self._add_version()
            if self.step % settings.publish_every == 0:
                self._publish_weights()
            if self.step % settings.checkpoint_every == 0:
                self._journal.commit_checkpoint(self.step)
                self._journal.compact_payloads(self.step)
            recent = self._steps_s[-8:]
            self._run_state = replace(
                self._run_state, step_s=sum(recent) / len(recent), dropped_groups=self._fill.dropped_groups
            )
            self._rollout.set_run_state(self._run_state)
        else:
            self._account.add_consumed(consumed)
        if self.step >= settings.steps:
            self._clock.stop()
            return
        self._rollout.read_journal()
        self.step_if_ready()

    def _consume(self, episode: SimulatedEpisode, staleness: dict[int, int]) -> ConsumedTrajectory:
        """Return the trained and masked tokens of a trajectory at the step that uses it."""
        for _, span in episode.spans:
            if span.version not in staleness:
                staleness[span.version] = self._lineage.staleness(span.version, self._version)
        used = np.array([staleness[span.version] for _, span in episode.spans], np.int32)
        kept = staleness_loss_mask(self._settings.policy, used, self._settings.max_staleness)
        return ConsumedTrajectory(
            used,
            np.array([span.tokens for _, span in episode.spans], np.int64),
            kept,
            np.array([turn for turn, _ in episode.spans], np.int32),
            episode.ended_s - episode.begun_s,
        )

    def _add_version(self) -> None:
        version = make_version(1, self._count)
        self._count += 1
        self._lineage.add(version, self.step, self._version)
        self._version = version

    def _publish_weights(self) -> None:
        """Load the weights into half of the engines after half of the time and into the rest at its end."""
        push_s, half = self._settings.push_s, len(self._engines) // 2
        self.served_version = self._version
        self._clock.schedule(push_s / 2, self._load, (self._version, self._engines[:half]))
        self._clock.schedule(push_s, self._load, (self._version, self._engines[half:]))
        self._clock.schedule(push_s, self._published, (self._version, self.step))

    def _load(self, update: tuple[WeightVersion, Sequence[SimulatedEngine]]) -> None:
        version, engines = update
        for engine in engines:
            if engine.version < version:
                engine.load_weights(version, self._settings.pause_s)

    def _published(self, publication: tuple[WeightVersion, int]) -> None:
        version, step = publication
        if version == self.served_version or step > self._run_state.served_step:
            self._set_run_state(replace(self._run_state, served_step=step))

    def _set_run_state(self, run_state: SchedulerRunState) -> None:
        self._run_state = run_state
        self._rollout.set_run_state(run_state)
        self.step_if_ready()
