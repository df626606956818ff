"""What a run would come to: speed, age, idle shares, and what bounds it.  The simulator's word, on what was measured.

Episodes and steps are those of a trace (a run's directory, or a file that the simulator kept of one) or of a scenario;
how many there are at once, how many make a step and how old a token may be are the configuration's.  A step of more
trajectories than was measured takes as much longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean

from launch.config import RunConfig
from launch.config.rollout import RolloutSection
from launch.simulate.scenario import Scenario
from launch.simulate.trace import Trace
from launch.simulate.workload import Drawn, EpisodePlan, Recorded, Workload
from launch.simulate.world import Cell, Outcome, Replayed, simulate
from protocol.errors import UserError
from protocol.events import Json
from protocol.trajectory import GroupId, Ticket

_MOST_STEPS = 100
"""That are simulated; the rest of a longer run goes on alike."""
_DRAWN = 1000
"""Episodes of a scenario whose mean is taken."""
_FED = 0.1
"""A learner that idles for a smaller share of its time is what bounds the run."""
_FULL = 0.9
"""Places of which such a share is taken bound it."""


class Bound(StrEnum):
    """What keeps a run from being faster, and what to turn."""

    LEARNER = "learner"
    ROLLOUT = "rollout"
    AGE = "age"

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Bound.LEARNER: "the learner always has a batch: more learner.ranks make it faster, more engines do not",
    Bound.ROLLOUT: "all places are taken and the learner waits: more engines and sandboxes (rollout.in_flight, "
    "engine.count, more machines) make it faster",
    Bound.AGE: "places are free and the learner waits, since older tokens would not be trained: raise staleness.eta, "
    "or lower learner.publish_every",
}


@dataclass(frozen=True, slots=True)
class Basis:
    """What was measured, or is assumed, of episodes and steps."""

    source: str
    workload: Workload
    scenario: Scenario
    step_s: tuple[float, ...]
    """Of each step that was measured, in their order; they come again behind the last."""
    episodes_per_step: int
    """In each of them."""
    episode_s: float
    """Mean, from its ticket to its acknowledgement."""
    generate_s: float
    """Mean of that which is an engine's."""
    in_flight: int
    """At once, where it was measured; 0 where it was not."""

    def busy_s(self, episodes: int) -> tuple[float, ...]:
        """What steps of so many trajectories take."""
        return tuple(seconds * episodes / self.episodes_per_step for seconds in self.step_s)


def of_trace(trace: Trace, rollout: RolloutSection) -> Basis:
    """Groups of another size than was measured are made of the members that there are."""
    file, workload = trace.file, trace.workload
    size = rollout.group_size
    resized = {
        (group, sample): workload.episodes[group, sample % file.group_size]
        for group in range(workload.groups)
        for sample in range(size)
    }
    plans = [*workload.episodes.values()]
    return Basis(
        source=f"the run {file.run}: {len(file.steps)} steps, {len(plans)} episodes",
        workload=Recorded(resized, workload.groups),
        scenario=trace.scenario,
        step_s=tuple(step.busy_s for step in file.steps),
        episodes_per_step=file.groups_per_step * file.group_size,
        episode_s=mean(map(_seconds, plans)),
        generate_s=mean(map(_generate_s, plans)),
        in_flight=file.in_flight,
    )


def of_scenario(scenario: Scenario, seed: int) -> Basis:
    """Episodes are drawn."""
    model, learner = scenario.episode, scenario.learner
    workload = Drawn(
        median_s=model.median_s,
        p95_over_median=model.p95_over_median,
        cut_over_median=model.cut_over_median,
        turns=model.turns,
        generate_share=model.generate_share,
        tokens_per_s=model.tokens_per_s,
        within_task=model.within_task,
        reward=model.reward,
        seed=seed,
    )
    plans = [workload.episode(_ticket(number)) for number in range(_DRAWN)]
    return Basis(
        source=f"the scenario {scenario.name}",
        workload=workload,
        scenario=scenario,
        step_s=(learner.step_s,),
        episodes_per_step=learner.groups_per_step * learner.group_size,
        episode_s=mean(map(_seconds, plans)),
        generate_s=mean(map(_generate_s, plans)),
        in_flight=0,
    )


def _ticket(number: int) -> Ticket:
    return Ticket("plan", GroupId(number), 0, 1, "task", seed=number)


def _generate_s(plan: EpisodePlan) -> float:
    return sum(turn.generate_s for turn in plan.turns)


def _seconds(plan: EpisodePlan) -> float:
    return plan.acquire_s + _generate_s(plan) + sum(turn.tool_s for turn in plan.turns) + plan.grade_s


@dataclass(frozen=True, slots=True)
class Forecast:
    source: str
    steps_per_hour: float
    trained_tokens_per_s: float
    age_mean: float
    age_max: int
    trained_share: float
    """Of the sampled tokens."""
    in_flight: float
    """Episodes at once, on average at the ends of steps."""
    places: int
    learner_idle: float
    engine_idle: float
    dropped_share: float
    """Of the trajectories that arrived: groups without variance, and what was too old."""
    bound: Bound

    def as_json(self) -> dict[str, Json]:
        return {
            "source": self.source,
            "steps_per_hour": round(self.steps_per_hour, 3),
            "trained_tokens_per_s": round(self.trained_tokens_per_s, 2),
            "age_mean": round(self.age_mean, 4),
            "age_max": self.age_max,
            "trained_share": round(self.trained_share, 4),
            "in_flight": round(self.in_flight, 2),
            "places": self.places,
            "learner_idle": round(self.learner_idle, 4),
            "engine_idle": round(self.engine_idle, 4),
            "dropped_share": round(self.dropped_share, 4),
            "bound": self.bound.value,
            "advice": self.bound.advice,
        }


def forecast(config: RunConfig, basis: Basis, seed: int = 0) -> Forecast:
    """Raises StandsStillError where no step would be made, UserError for a run that cannot be simulated."""
    if config.shared:
        raise UserError(
            "cluster.placement = 'shared' takes turns, which the simulator does not: leave --from and --scenario out, "
            "or plan with --set cluster.placement=separate"
        )
    places, steps = places_of(config), min(config.run.steps, _MOST_STEPS)
    busy_s = basis.busy_s(config.rollout.episodes_per_step)
    cell = Cell(config.cluster.nodes, config.run.mode, config.staleness.policy, config.staleness.eta, places)
    replayed = Replayed(lambda step: busy_s[(step - 1) % len(busy_s)], config.dynamic_sampling)
    outcome = simulate(_scenario(config, basis, steps), cell, basis.workload, seed, replayed)
    return _read(basis.source, outcome, steps, places, config.rollout.episodes_per_step)


def places_of(config: RunConfig) -> int:
    """Episodes at once: as many as the engines are to hold, and at most as many as the workers have places for.  Nodes
    that are simulated share those of one."""
    rollout, nodes = config.rollout, config.cluster.nodes
    each = rollout.episodes_per_worker if config.cluster.address else rollout.share(nodes)
    asked = rollout.in_flight or config.engine.count * config.engine.max_running
    return min(asked, nodes * rollout.workers_per_node * each)


def _scenario(config: RunConfig, basis: Basis, steps: int) -> Scenario:
    values = basis.scenario.model_dump()
    values["learner"] |= {
        "groups_per_step": config.rollout.groups_per_step,
        "group_size": config.rollout.group_size,
        "publish_every": config.learner.publish_every,
        "checkpoint_every": config.checkpoint.every_steps,
        "steps": steps,
        "warm_up": 0,
    }
    values["engine"]["per_node"] = config.engine.count / config.cluster.nodes
    values["faults"]["nodes_per_hour"] = 0.0
    return Scenario.model_validate(values)


def _read(source: str, outcome: Outcome, steps: int, places: int, episodes_per_step: int) -> Forecast:
    account, ages = outcome.account, outcome.account.ages()
    trained, idle = max(1, account.trained), account.waited_s / account.seconds
    in_flight = mean(sample.in_flight for sample in account.samples)
    dropped = sum(outcome.dropped.values())
    return Forecast(
        source=source,
        steps_per_hour=3600 * steps / account.seconds,
        trained_tokens_per_s=account.trained / account.seconds,
        age_mean=sum(age * tokens for age, tokens in enumerate(ages)) / trained,
        age_max=max((age for age, tokens in enumerate(ages) if tokens), default=0),
        trained_share=account.trained / max(1, account.sampled),
        in_flight=in_flight,
        places=places,
        learner_idle=idle,
        engine_idle=outcome.engine_idle,
        dropped_share=dropped / (dropped + steps * episodes_per_step),
        bound=Bound.LEARNER if idle < _FED else Bound.ROLLOUT if in_flight > _FULL * places else Bound.AGE,
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """What keeps the learner always fed, by Little's law: how many are at once is how many come in a second times how
    long each stays."""

    sandboxes: int
    engines: int
    hosts: int
    """Machines for the sandboxes."""

    def as_json(self) -> dict[str, Json]:
        return {"sandboxes": self.sandboxes, "engines": self.engines, "hosts": self.hosts}


def needs(config: RunConfig, basis: Basis, dropped_share: float) -> Needs:
    """At the pace of a learner that never waits, where ``dropped_share`` of what arrives is never trained."""
    episodes = config.rollout.episodes_per_step
    arrivals_per_s = episodes / (1 - dropped_share) / mean(basis.busy_s(episodes))
    sandboxes = math.ceil(arrivals_per_s * basis.episode_s)
    return Needs(
        sandboxes=sandboxes,
        engines=math.ceil(arrivals_per_s * basis.generate_s / config.engine.max_running),
        hosts=math.ceil(sandboxes / config.sandbox.capacity_per_node),
    )


def caution(config: RunConfig, basis: Basis) -> str:
    """What the forecast cannot know, if there is anything: empty for a plan of what was measured."""
    if not basis.in_flight:
        return "episodes and steps are assumed, not measured: --from RUN takes those of a run of yours"
    now, then = places_of(config), basis.in_flight
    if max(now, then) > 1.25 * min(now, then):
        return (
            f"{then} episodes ran at once when this was measured, and here {now} would: each is taken to be as fast, "
            "which engines of the same number are not"
        )
    return ""
