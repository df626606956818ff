"""Wires one simulated cluster: clock, engines, workers, scheduler, journal, learner and faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from actors.scheduler.core import SchedulerCore
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.settings import SchedulerSettings, SchedulerSpec
from launch.simulate.episode_workload import EpisodeWorkload
from launch.simulate.scenario import CURVES, Scenario
from launch.simulate.simulated_engines import SimulatedEngine, speed_by_load, total_idle_s
from launch.simulate.simulated_learner import SimulatedLearner, SimulatedLearnerSettings
from launch.simulate.simulated_rollout import SimulatedRollout
from launch.simulate.token_accounting import TokenAccounting
from launch.simulate.virtual_clock import VirtualClock
from protocol.errors import LongshoreError
from protocol.events import JsonValue
from protocol.journal import Journal, JournalSettings
from protocol.staleness import AdmissionLimit, AdmissionMode, StaleTokenPolicy

UNBOUNDED = 1_000_000
"""Staleness bound of asynchronous training without a bound, and number of steps of an endless run."""
_TASKS = 4096
_LIMIT_STEPS = 100
"""A simulation is stalled when it takes this many times the learner's own time for its steps."""


class SimulationStalledError(LongshoreError):
    """A simulated run makes no progress."""


class SimulationSettings(NamedTuple):
    """One row's settings."""

    nodes: int
    mode: AdmissionMode
    policy: StaleTokenPolicy
    max_staleness: int
    in_flight: int
    faults: bool = True
    """Whether nodes fail as the scenario says."""

    @property
    def description(self) -> str:
        """The settings as one line of text."""
        bound = "no bound" if self.max_staleness == UNBOUNDED else f"staleness ≤ {self.max_staleness}"
        faults = "" if self.faults else ", no faults"
        return f"{self.mode}, {self.policy}, {bound}, {self.nodes:,} nodes, {self.in_flight:,} in flight{faults}"

    @property
    def without_faults(self) -> SimulationSettings:
        """The same settings without faults."""
        return self._replace(faults=False)

    @property
    def without_staleness_bound(self) -> SimulationSettings:
        """The same settings without a staleness bound."""
        return self._replace(mode=AdmissionMode.ASYNC, policy=StaleTokenPolicy.MASK, max_staleness=UNBOUNDED)

    @property
    def as_sync(self) -> SimulationSettings:
        """The same settings with synchronous rollout, in which no token is ever old."""
        return self._replace(mode=AdmissionMode.SYNC, policy=StaleTokenPolicy.MASK, max_staleness=0)


@dataclass(slots=True)
class NodeFault:
    """A node that failed, and the work that was lost."""

    node: int
    at_s: float
    episodes: int
    engine: bool
    """Whether an engine was on the node."""
    requests: int
    """Number of requests on the engine, which were sent to other engines."""
    tokens: int
    """Number of sampled tokens that were lost."""
    repaired_s: float | None = None
    """Time at which the node came back; None if the run ended before."""

    @property
    def away_s(self) -> float | None:
        return None if self.repaired_s is None else self.repaired_s - self.at_s


@dataclass(slots=True)
class SimulationResult:
    account: TokenAccounting
    engine_idle: float
    """Share of the engines' time without a request, after the warm-up."""
    dropped: dict[str, int]
    """Acknowledged trajectories that were not trained, by reason, after the warm-up."""
    holds: dict[str, int]
    """Reason for which the scheduler opened no group → how often it began to apply."""
    faults: list[NodeFault] = field(default_factory=list[NodeFault])


@dataclass(frozen=True, slots=True)
class ReplayOverrides:
    """Values of a recorded run that replace those of the scenario."""

    step_s: Callable[[int], float]
    """Returns the duration of step n, without waiting."""
    dynamic_sampling: bool


def simulate(
    scenario: Scenario,
    cell: SimulationSettings,
    workload: EpisodeWorkload,
    seed: int,
    replayed: ReplayOverrides | None = None,
) -> SimulationResult:
    """Simulate one row.  The same arguments give the same result.  Raises SimulationStalledError."""
    return SimulatedCluster(scenario, cell, workload, seed, replayed).run()


class SimulatedCluster:
    def __init__(
        self,
        scenario: Scenario,
        cell: SimulationSettings,
        workload: EpisodeWorkload,
        seed: int,
        replayed: ReplayOverrides | None,
    ) -> None:
        self._scenario, self._cell = scenario, cell
        self.clock = VirtualClock()
        learner, model = scenario.learner, scenario.engine
        self._hold_counts: dict[str, int] = {}
        self._journal = Journal(
            Path(":memory:"),
            JournalSettings(
                run_id="simulated",
                max_trajectory_bytes=1,
                budget_bytes=1 << 40,
                dynamic_sampling=replayed is None or replayed.dynamic_sampling,
            ),
            free=lambda _: 1 << 50,
        )
        self._scheduler = SchedulerCore(self._scheduler_spec(seed), self._count_hold)
        speeds = speed_by_load(CURVES[model.curve], model.reference_load)
        count = max(1, round(cell.nodes * model.per_node))
        self._engines = [SimulatedEngine(self.clock, speeds) for _ in range(count)]
        self._account = TokenAccounting(learner.warm_up)
        step_s = replayed.step_s if replayed else _constant_step_s(learner.step_s)
        self.learner = SimulatedLearner(
            self.clock,
            SimulatedLearnerSettings(
                groups_per_step=learner.groups_per_step,
                group_size=learner.group_size,
                max_staleness=cell.max_staleness,
                unbounded=cell.max_staleness == UNBOUNDED,
                policy=cell.policy,
                publish_every=self._publish_every,
                checkpoint_every=learner.checkpoint_every,
                steps=learner.steps,
                step_s=step_s,
                push_s=model.push_s,
                pause_s=model.pause_s,
            ),
            journal=self._journal,
            scheduler=self._scheduler,
            engines=self._engines,
            account=self._account,
        )
        self.rollout = SimulatedRollout(
            self.clock,
            scheduler=self._scheduler,
            journal=self._journal,
            engines=self._engines,
            workload=workload,
            capacities=_spread_evenly(cell.in_flight, cell.nodes),
            on_groups_closed=self.learner.step_if_ready,
        )
        self._faults: list[NodeFault] = []
        self._fault_rng = random.Random(f"{seed}/faults")

    def run(self) -> SimulationResult:
        learner = self._scenario.learner
        self.rollout.start()
        self.learner.start(self.rollout)
        self._schedule_fault()
        limit_s = _LIMIT_STEPS * learner.steps * max(learner.step_s, self._scenario.episode.median_s)
        try:
            if not self.clock.run(limit_s):
                hold = self._scheduler.groups.hold
                raise SimulationStalledError(
                    f"{self._cell.description}: step {self.learner.step} of {learner.steps} "
                    f"after {self.clock.now:,.0f} simulated seconds, "
                    f"{self._journal.statistics().dropped:,} groups dropped without training, next group held by "
                    f"{hold.value if hold else 'nothing'}: check episode.reward, the learner's batch and the episodes "
                    "in flight"
                )
            accounting = self._journal.accounting()
        finally:
            self._journal.close()
        return SimulationResult(
            self._account,
            self._account.engine_idle(total_idle_s(self._engines), len(self._engines)),
            self._account.count_dropped(accounting.dropped),
            dict(sorted(self._hold_counts.items())),
            self._faults,
        )

    def _scheduler_spec(self, seed: int) -> SchedulerSpec:
        cell, learner = self._cell, self._scenario.learner
        settings = SchedulerSettings(
            groups_per_step=learner.groups_per_step, group_size=learner.group_size, replacement_limit=3
        )
        return SchedulerSpec(
            run_id="simulated",
            run_dir=Path(),
            node="node-0",
            tasks=tuple(f"task-{number}" for number in range(_TASKS)),
            settings=settings,
            admission=AdmissionLimit(cell.mode, learner.groups_per_step, cell.max_staleness),
            total_steps=UNBOUNDED,
            request_deadline_s=20 * self._scenario.episode.median_s,
            seed=seed,
            tuning=settings.tuning(publish_every=self._publish_every),
            order=TaskOrder.LISTED,
        )

    @property
    def _publish_every(self) -> int:
        return self._cell.mode.publish_every(self._scenario.learner.publish_every)

    def _count_hold(self, kind: str, **fields: JsonValue) -> None:
        if kind == "admission.held":
            reason = str(fields["reason"])
            self._hold_counts[reason] = self._hold_counts.get(reason, 0) + 1

    # -- faults --------------------------------------------------------------------------------------------------

    def _schedule_fault(self) -> None:
        rate = self._cell.faults * self._scenario.faults.nodes_per_hour * self._cell.nodes / 3600
        if rate > 0:
            self.clock.schedule(self._fault_rng.expovariate(rate), self._kill_node)

    def _kill_node(self, _: None) -> None:
        node = self._fault_rng.randrange(self._cell.nodes)
        self._schedule_fault()
        if not self.rollout.workers[node].alive:
            return
        before = self.rollout.lost_tokens
        index = self._engine_on(node)
        requests = self._engines[index].requests if index is not None else 0
        episodes = self.rollout.kill_node(node)
        if index is not None:
            self._engines[index].die()
        tokens = self.rollout.lost_tokens - before
        fault = NodeFault(node, self.clock.now, episodes, index is not None, requests, tokens)
        self._faults.append(fault)
        self.clock.schedule(self._scenario.faults.repair_s, self._repair_node, fault)

    def _repair_node(self, fault: NodeFault) -> None:
        fault.repaired_s = self.clock.now
        index = self._engine_on(fault.node)
        if index is not None:
            self._engines[index].revive(self.learner.served_version)
        self.rollout.repair_node(fault.node)

    def _engine_on(self, node: int) -> int | None:
        """Return the index of the engine on ``node``, if any: engines are spread evenly."""
        count, nodes = len(self._engines), self._cell.nodes
        index = node * count // nodes
        return index if index * nodes // count == node and index < count else None


def _constant_step_s(seconds: float) -> Callable[[int], float]:
    def step_s(_step: int) -> float:
        return seconds

    return step_s


def _spread_evenly(episodes: int, nodes: int) -> Sequence[int]:
    """Return the capacity of each node, as equal as possible."""
    return [episodes // nodes + (node < episodes % nodes) for node in range(nodes)]
