"""The simulated learner: the training loop's order of calls, with the real journal and the real rules of age; only the
step itself is nothing but time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from actors.admission import Tuning
from actors.dispatch import Dispatch, Standing
from launch.batch_fill import BatchFill
from launch.simulate.account import Account, Consumed
from launch.simulate.clock import Clock
from launch.simulate.engines import Engine, idle_s
from launch.simulate.rollout import Episode, Rollout
from protocol.journal import Journal, Lease
from protocol.staleness import StalePolicy, keeps_loss, may_step
from protocol.trajectory import DropReason
from protocol.weights import NO_VERSION, Lineage, Version, make_version


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    groups_per_step: int
    group_size: int
    eta: int
    unbounded: bool
    policy: StalePolicy
    publish_every: int
    checkpoint_every: int
    steps: int
    step_s: Callable[[int], float]
    """What step n takes, publishing included."""
    push_s: float
    pause_s: float


class Learner:
    def __init__(
        self,
        clock: Clock,
        settings: LearnerSettings,
        *,
        journal: Journal,
        dispatch: Dispatch,
        engines: Sequence[Engine],
        account: Account,
    ) -> None:
        self._clock, self._settings, self._journal, self._dispatch = clock, settings, journal, dispatch
        self._engines, self._account = engines, account
        self.step = 0
        self.served = NO_VERSION
        """The newest version that was offered to the engines; one that comes back serves it."""
        self._version, self._lineage, self._count = NO_VERSION, Lineage(), 0
        self._stepping = False
        self._waiting_since = 0.0
        # Without a bound, nothing holds rollout back but its places.
        unbounded = Tuning(lead=settings.eta, publish_every=settings.publish_every)
        self._standing = Standing(training=True, tuning=unbounded if settings.unbounded else None)
        self._steps_s: list[float] = []
        self._fill = BatchFill(settings.groups_per_step, settings.group_size)

    def begin(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._advance()
        self.served = self._version
        for engine in self._engines:
            engine.version = self._version
        self._stand(self._standing)

    def consider(self) -> None:
        """Take a step if there is a batch, and the policy lets it."""
        settings = self._settings
        if self._stepping or self._dispatch.ready < self._fill.groups:
            return
        lease = self._journal.lease(self._fill.groups)
        if lease is None or not self._strands_nobody(lease):
            return
        self._stepping = True
        self._account.waited(self._clock.now - self._waiting_since)
        seconds = settings.step_s(self.step + 1)
        self._steps_s.append(seconds)
        self._clock.after(seconds, self._stepped, lease)

    def _strands_nobody(self, lease: Lease) -> bool:
        if self._settings.policy is not StalePolicy.WAIT:
            return True
        oldest = self._dispatch.binding_step(self.step, [group.group for group in lease.groups])
        return may_step(self.step, oldest, self._settings.eta)

    def _stepped(self, lease: Lease) -> None:
        settings, now = self._settings, self._clock.now
        ages: dict[int, int] = {}
        consumed = [self._consume(self._rollout.arrived.pop(name), ages) for name in lease.trajectories]
        trained = [name for name, use in zip(lease.trajectories, consumed, strict=True) if use.trained]
        dropped = {
            name: DropReason.ALL_STALE
            for name, use in zip(lease.trajectories, consumed, strict=True)
            if not use.trained
        }
        self._journal.mark_trained(self.step + 1, trained, dropped)
        self._stepping, self._waiting_since = False, now
        if trained:
            self.step += 1
            self._fill.stepped(len(dropped))
            ready = self._dispatch.ready - len(lease.groups)
            self._account.step(self.step, now, consumed, self._rollout.in_flight, ready)
            if self.step == self._account.warm_up:
                self._account.warmed_up(idle_s(self._engines), self._journal.accounting().dropped)
            self._advance()
            if self.step % settings.publish_every == 0:
                self._push()
            if self.step % settings.checkpoint_every == 0:
                self._journal.commit(self.step)
                self._journal.compact(self.step)
            recent = self._steps_s[-8:]
            self._standing = replace(
                self._standing, step_s=sum(recent) / len(recent), lost_groups=self._fill.lost_groups
            )
            self._rollout.stand(self._standing)
        else:
            self._account.use(consumed)
        if self.step >= settings.steps:
            self._clock.stop()
            return
        self._rollout.follow()
        self.consider()

    def _consume(self, episode: Episode, ages: dict[int, int]) -> Consumed:
        """What the policy leaves of one trajectory, at the step that uses it."""
        for _, span in episode.spans:
            if span.version not in ages:
                ages[span.version] = self._lineage.age(span.version, self._version)
        age = np.array([ages[span.version] for _, span in episode.spans], np.int32)
        kept = keeps_loss(self._settings.policy, age, self._settings.eta)
        return Consumed(
            age,
            np.array([span.tokens for _, span in episode.spans], np.int64),
            kept,
            np.array([turn for turn, _ in episode.spans], np.int32),
            episode.ended_s - episode.begun_s,
        )

    def _advance(self) -> None:
        version = make_version(1, self._count)
        self._count += 1
        self._lineage.add(version, self.step, self._version)
        self._version = version

    def _push(self) -> None:
        """Half of the fleet after half of the time; then the conductor hears."""
        push_s, half = self._settings.push_s, len(self._engines) // 2
        self.served = self._version
        self._clock.after(push_s / 2, self._load, (self._version, self._engines[:half]))
        self._clock.after(push_s, self._load, (self._version, self._engines[half:]))
        self._clock.after(push_s, self._published, (self._version, self.step))

    def _load(self, what: tuple[Version, Sequence[Engine]]) -> None:
        version, engines = what
        for engine in engines:
            if engine.version < version:
                engine.load(version, self._settings.pause_s)

    def _published(self, what: tuple[Version, int]) -> None:
        version, step = what
        if version == self.served or step > self._standing.published_step:
            self._stand(replace(self._standing, published_step=step))

    def _stand(self, standing: Standing) -> None:
        self._standing = standing
        self._rollout.stand(standing)
        self.consider()
