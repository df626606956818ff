"""One simulated cluster, wired: clock, engines, workers, conductor, journal, learner, faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from actors.admission import Tuning
from actors.dispatch import ConductorSettings, Dispatch
from launch.simulate.account import Account
from launch.simulate.clock import Clock
from launch.simulate.engines import Engine, idle_s, speed_by_load
from launch.simulate.learner import Learner, LearnerSettings
from launch.simulate.rollout import Rollout
from launch.simulate.scenario import CURVES, Scenario
from launch.simulate.workload import Workload
from protocol.errors import LongshoreError
from protocol.events import Json
from protocol.journal import Journal, JournalSettings
from protocol.staleness import Admission, AdmissionMode, StalePolicy

UNBOUNDED = 1_000_000
"""η of asynchronous training without a bound, and steps of a run that does not end."""
_TASKS = 4096
_LIMIT_STEPS = 100
"""A simulation that takes so many times the learner's own time for its steps stands still."""


class StandsStillError(LongshoreError):
    """A simulated run makes no progress."""


class Cell(NamedTuple):
    """One row's settings."""

    nodes: int
    mode: AdmissionMode
    policy: StalePolicy
    eta: int
    in_flight: int
    faults: bool = True
    """Whether nodes die, as the scenario says."""

    @property
    def words(self) -> str:
        """For people."""
        eta = "-" if self.eta == UNBOUNDED else str(self.eta)
        faults = "" if self.faults else ", no faults"
        return f"{self.mode}, {self.policy}, η {eta}, {self.nodes:,} nodes, {self.in_flight:,} in flight{faults}"

    @property
    def faultless(self) -> Cell:
        """The same where no node dies."""
        return self._replace(faults=False)

    @property
    def unbounded(self) -> Cell:
        """The same without any bound on age."""
        return self._replace(mode=AdmissionMode.ASYNC, policy=StalePolicy.MASK, eta=UNBOUNDED)

    @property
    def sync(self) -> Cell:
        """The same with a rollout that waits for each step's weights: whatever its bound, no token is ever old."""
        return self._replace(mode=AdmissionMode.SYNC, policy=StalePolicy.MASK, eta=0)


@dataclass(slots=True)
class Fault:
    """A node that died, and what it cost."""

    node: int
    at_s: float
    episodes: int
    engine: bool
    """An engine was on it."""
    requests: int
    """That the engine was decoding: each was sent elsewhere."""
    tokens: int
    """Sampled in vain, by its episodes and for the requests of its engine."""
    repaired_s: float | None = None
    """None where the run ended before."""

    @property
    def away_s(self) -> float | None:
        return None if self.repaired_s is None else self.repaired_s - self.at_s


@dataclass(slots=True)
class Outcome:
    account: Account
    engine_idle: float
    """Share of the engines' time without a request; what came before the warm-up's end is left out, here as below."""
    dropped: dict[str, int]
    """Acknowledged trajectories that were not trained, by reason."""
    holds: dict[str, int]
    """What kept the conductor from opening a group, and how often that became so."""
    faults: list[Fault] = field(default_factory=list[Fault])


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a real run says instead of the scenario."""

    step_s: Callable[[int], float]
    """What step n took its learner, waiting left out."""
    dynamic_sampling: bool


def simulate(
    scenario: Scenario, cell: Cell, workload: Workload, seed: int, replayed: Replayed | None = None
) -> Outcome:
    """Run one row.  The same arguments give the same outcome.  Raises StandsStillError when no step is made."""
    world = World(scenario, cell, workload, seed, replayed)
    return world.run()


class World:
    def __init__(
        self, scenario: Scenario, cell: Cell, workload: Workload, seed: int, replayed: Replayed | None
    ) -> None:
        self._scenario, self._cell = scenario, cell
        self._clock = Clock()
        learner, model = scenario.learner, scenario.engine
        self._holds: dict[str, int] = {}
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
        self._dispatch = Dispatch(self._conductor_settings(seed), self._say)
        speeds = speed_by_load(CURVES[model.curve], model.reference_load)
        count = max(1, round(cell.nodes * model.per_node))
        self._engines = [Engine(self._clock, speeds) for _ in range(count)]
        self._account = Account(learner.warm_up)
        step_s = replayed.step_s if replayed else _always(learner.step_s)
        self._learner = Learner(
            self._clock,
            LearnerSettings(
                groups_per_step=learner.groups_per_step,
                group_size=learner.group_size,
                eta=cell.eta,
                unbounded=cell.eta == UNBOUNDED,
                policy=cell.policy,
                publish_every=self._publish_every,
                checkpoint_every=learner.checkpoint_every,
                steps=learner.steps,
                step_s=step_s,
                push_s=model.push_s,
                pause_s=model.pause_s,
            ),
            journal=self._journal,
            dispatch=self._dispatch,
            engines=self._engines,
            account=self._account,
        )
        self._rollout = Rollout(
            self._clock,
            dispatch=self._dispatch,
            journal=self._journal,
            engines=self._engines,
            workload=workload,
            places=_shared(cell.in_flight, cell.nodes),
            news=self._learner.consider,
        )
        self._faults: list[Fault] = []
        self._dice = random.Random(f"{seed}/faults")

    def run(self) -> Outcome:
        learner = self._scenario.learner
        self._rollout.begin()
        self._learner.begin(self._rollout)
        self._next_fault()
        limit_s = _LIMIT_STEPS * learner.steps * max(learner.step_s, self._scenario.episode.median_s)
        try:
            if not self._clock.run(limit_s):
                hold = self._dispatch.hold
                raise StandsStillError(
                    f"{self._cell.words}: step {self._learner.step} of {learner.steps} after {self._clock.now:,.0f} "
                    f"simulated seconds, {self._journal.statistics().dropped:,} groups dropped for want of use, "
                    f"{hold.value if hold else 'nothing'} holding back the next: look at episode.reward, the learner's "
                    "batch and the episodes in flight"
                )
            books = self._journal.accounting()
        finally:
            self._journal.close()
        return Outcome(
            self._account,
            self._account.engine_idle(idle_s(self._engines), len(self._engines)),
            self._account.dropped(books.dropped),
            dict(sorted(self._holds.items())),
            self._faults,
        )

    def _conductor_settings(self, seed: int) -> ConductorSettings:
        cell, learner = self._cell, self._scenario.learner
        return ConductorSettings(
            run_id="simulated",
            run_dir=Path(),
            node="node-0",
            tasks=tuple(f"task-{number}" for number in range(_TASKS)),
            group_size=learner.group_size,
            admission=Admission(cell.mode, learner.groups_per_step, cell.eta),
            total_steps=UNBOUNDED,
            replacement_limit=3,
            ticket_deadline_s=20 * self._scenario.episode.median_s,
            seed=seed,
            tuning=Tuning(publish_every=self._publish_every),
        )

    @property
    def _publish_every(self) -> int:
        return self._cell.mode.publish_every(self._scenario.learner.publish_every)

    def _say(self, kind: str, **fields: Json) -> None:
        if kind == "admission.held":
            reason = str(fields["reason"])
            self._holds[reason] = self._holds.get(reason, 0) + 1

    # -- faults --------------------------------------------------------------------------------------------------

    def _next_fault(self) -> None:
        rate = self._cell.faults * self._scenario.faults.nodes_per_hour * self._cell.nodes / 3600
        if rate > 0:
            self._clock.after(self._dice.expovariate(rate), self._die)

    def _die(self, _: None) -> None:
        node = self._dice.randrange(self._cell.nodes)
        self._next_fault()
        if not self._rollout.workers[node].alive:
            return
        before = self._rollout.lost_tokens
        index = self._engine_on(node)
        requests = self._engines[index].requests if index is not None else 0
        episodes = self._rollout.node_died(node)
        if index is not None:
            self._engines[index].die()
        tokens = self._rollout.lost_tokens - before
        fault = Fault(node, self._clock.now, episodes, index is not None, requests, tokens)
        self._faults.append(fault)
        self._clock.after(self._scenario.faults.repair_s, self._repair, fault)

    def _repair(self, fault: Fault) -> None:
        fault.repaired_s = self._clock.now
        index = self._engine_on(fault.node)
        if index is not None:
            self._engines[index].revive(self._learner.served)
        self._rollout.node_repaired(fault.node)

    def _engine_on(self, node: int) -> int | None:
        """The engine that lives on ``node``: they are spread evenly."""
        count, nodes = len(self._engines), self._cell.nodes
        index = node * count // nodes
        return index if index * nodes // count == node and index < count else None


def _always(seconds: float) -> Callable[[int], float]:
    def step_s(_step: int) -> float:
        return seconds

    return step_s


def _shared(places: int, nodes: int) -> Sequence[int]:
    """``places`` over ``nodes``, as evenly as can be."""
    return [places // nodes + (node < places % nodes) for node in range(nodes)]
