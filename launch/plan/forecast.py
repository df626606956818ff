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
from launch.config.tables import RolloutTable
from launch.simulate.episode_workload import DrawnWorkload, EpisodePlan, EpisodeWorkload, RecordedWorkload
from launch.simulate.run_trace import RunTrace
from launch.simulate.scenario import Scenario
from launch.simulate.simulated_cluster import ReplayOverrides, SimulationResult, SimulationSettings, simulate
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.trajectory import GroupId, RolloutRequest

_MOST_STEPS = 100
"""That are simulated; the rest of a longer run goes on alike."""
_DRAWN = 1000
"""Episodes of a scenario whose mean is taken."""
_FED = 0.1
"""A learner that idles for a smaller share of its time is what bounds the run."""
_FULL = 0.9
"""Places of which such a share is taken bound it."""


class Bottleneck(StrEnum):
    """What keeps a run from being faster, and what to turn."""

    LEARNER = "learner"
    ROLLOUT = "rollout"
    AGE = "age"

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Bottleneck.LEARNER: "the learner always has a batch: more learner.ranks make it faster, more engines do not",
    Bottleneck.ROLLOUT: "all places are taken and the learner waits: more engines and sandboxes (rollout.in_flight, "
    "engine.count, more machines) make it faster",
    Bottleneck.AGE: "places are free and the learner waits, since older tokens would not be trained: "
    "raise staleness.max_staleness, or lower learner.publish_every",
}


@dataclass(frozen=True, slots=True)
class ForecastBasis:
    """What was measured, or is assumed, of episodes and steps."""

    source: str
    workload: EpisodeWorkload
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


def basis_from_trace(trace: RunTrace, rollout: RolloutTable) -> ForecastBasis:
    """Groups of another size than was measured are made of the members that there are."""
    file, workload = trace.file, trace.workload
    size = rollout.group_size
    resized = {
        (group, sample): workload.episodes[group, sample % file.group_size]
        for group in range(workload.groups)
        for sample in range(size)
    }
    plans = [*workload.episodes.values()]
    return ForecastBasis(
        source=f"the run {file.run}: {len(file.steps)} steps, {len(plans)} episodes",
        workload=RecordedWorkload(resized, workload.groups),
        scenario=trace.scenario,
        step_s=tuple(step.busy_s for step in file.steps),
        episodes_per_step=file.groups_per_step * file.group_size,
        episode_s=mean(map(_seconds, plans)),
        generate_s=mean(map(_generate_s, plans)),
        in_flight=file.in_flight,
    )


def basis_from_scenario(scenario: Scenario, seed: int) -> ForecastBasis:
    """Episodes are drawn."""
    model, learner = scenario.episode, scenario.learner
    workload = DrawnWorkload(
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
    plans = [workload.plan_episode(_ticket(number)) for number in range(_DRAWN)]
    return ForecastBasis(
        source=f"the scenario {scenario.name}",
        workload=workload,
        scenario=scenario,
        step_s=(learner.step_s,),
        episodes_per_step=learner.groups_per_step * learner.group_size,
        episode_s=mean(map(_seconds, plans)),
        generate_s=mean(map(_generate_s, plans)),
        in_flight=0,
    )


def _ticket(number: int) -> RolloutRequest:
    return RolloutRequest("plan", GroupId(number), 0, 1, "task", seed=number)


def _generate_s(plan: EpisodePlan) -> float:
    return sum(turn.generate_s for turn in plan.turns)


def _seconds(plan: EpisodePlan) -> float:
    return plan.acquire_s + _generate_s(plan) + sum(turn.tool_s for turn in plan.turns) + plan.grade_s


@dataclass(frozen=True, slots=True)
class Forecast:
    source: str
    steps_per_hour: float
    trained_tokens_per_s: float
    staleness_mean: float
    staleness_max: int
    trained_share: float
    """Of the sampled tokens."""
    in_flight: float
    """Episodes at once, on average at the ends of steps."""
    capacity: int
    learner_idle: float
    engine_idle: float
    dropped_share: float
    """Of the trajectories that arrived: groups without variance, and what was too old."""
    bottleneck: Bottleneck

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "source": self.source,
            "steps_per_hour": round(self.steps_per_hour, 3),
            "trained_tokens_per_s": round(self.trained_tokens_per_s, 2),
            "staleness_mean": round(self.staleness_mean, 4),
            "staleness_max": self.staleness_max,
            "trained_share": round(self.trained_share, 4),
            "in_flight": round(self.in_flight, 2),
            "places": self.capacity,
            "learner_idle": round(self.learner_idle, 4),
            "engine_idle": round(self.engine_idle, 4),
            "dropped_share": round(self.dropped_share, 4),
            "bound": self.bottleneck.value,
            "advice": self.bottleneck.advice,
        }


def forecast_run(config: RunConfig, basis: ForecastBasis, seed: int = 0) -> Forecast:
    """Raises StandsStillError where no step would be made, UserError for a run that cannot be simulated."""
    if config.colocated:
        raise UserError(
            "cluster.placement = 'colocated' takes turns, which the simulator does not: "
            "leave --from and --scenario out, or plan with --set cluster.placement=separate"
        )
    places, steps = max_episodes(config), min(config.run.steps, _MOST_STEPS)
    busy_s = basis.busy_s(config.rollout.episodes_per_step)
    cell = SimulationSettings(
        config.cluster.nodes, config.run.mode, config.staleness.policy, config.staleness.max_staleness, places
    )
    replayed = ReplayOverrides(lambda step: busy_s[(step - 1) % len(busy_s)], config.dynamic_sampling)
    outcome = simulate(_scenario(config, basis, steps), cell, basis.workload, seed, replayed)
    return _read(basis.source, outcome, steps, places, config.rollout.episodes_per_step)


def max_episodes(config: RunConfig) -> int:
    """Episodes at once: as many as the engines are to hold, and at most as many as the workers have places for.  Nodes
    that are simulated share those of one."""
    rollout, nodes = config.rollout, config.cluster.nodes
    each = rollout.episodes_per_worker if config.cluster.address else rollout.episodes_per_worker_of(nodes)
    asked = rollout.in_flight or config.engine.count * config.engine.max_running
    return min(asked, nodes * rollout.workers_per_node * each)


def _scenario(config: RunConfig, basis: ForecastBasis, steps: int) -> Scenario:
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


def _read(source: str, outcome: SimulationResult, steps: int, places: int, episodes_per_step: int) -> Forecast:
    account, ages = outcome.account, outcome.account.tokens_by_staleness()
    trained, idle = max(1, account.trained), account.waited_s / account.seconds
    in_flight = mean(sample.in_flight for sample in account.samples)
    dropped = sum(outcome.dropped.values())
    return Forecast(
        source=source,
        steps_per_hour=3600 * steps / account.seconds,
        trained_tokens_per_s=account.trained / account.seconds,
        staleness_mean=sum(age * tokens for age, tokens in enumerate(ages)) / trained,
        staleness_max=max((age for age, tokens in enumerate(ages) if tokens), default=0),
        trained_share=account.trained / max(1, account.sampled),
        in_flight=in_flight,
        capacity=places,
        learner_idle=idle,
        engine_idle=outcome.engine_idle,
        dropped_share=dropped / (dropped + steps * episodes_per_step),
        bottleneck=Bottleneck.LEARNER
        if idle < _FED
        else Bottleneck.ROLLOUT
        if in_flight > _FULL * places
        else Bottleneck.AGE,
    )


@dataclass(frozen=True, slots=True)
class ResourceNeeds:
    """What keeps the learner always fed, by Little's law: how many are at once is how many come in a second times how
    long each stays."""

    sandboxes: int
    engines: int
    hosts: int
    """Machines for the sandboxes."""

    def as_json(self) -> dict[str, JsonValue]:
        return {"sandboxes": self.sandboxes, "engines": self.engines, "hosts": self.hosts}


def estimate_needs(config: RunConfig, basis: ForecastBasis, dropped_share: float) -> ResourceNeeds:
    """At the pace of a learner that never waits, where ``dropped_share`` of what arrives is never trained."""
    episodes = config.rollout.episodes_per_step
    arrivals_per_s = episodes / (1 - dropped_share) / mean(basis.busy_s(episodes))
    sandboxes = math.ceil(arrivals_per_s * basis.episode_s)
    return ResourceNeeds(
        sandboxes=sandboxes,
        engines=math.ceil(arrivals_per_s * basis.generate_s / config.engine.max_running),
        hosts=math.ceil(sandboxes / config.sandbox.capacity_per_node),
    )


def forecast_caveat(config: RunConfig, basis: ForecastBasis) -> str:
    """What the forecast cannot know, if there is anything: empty for a plan of what was measured."""
    if not basis.in_flight:
        return "episodes and steps are assumed, not measured: --from RUN takes those of a run of yours"
    now, then = max_episodes(config), basis.in_flight
    if max(now, then) > 1.25 * min(now, then):
        return (
            f"{then} episodes ran at once when this was measured, and here {now} would: each is taken to be as fast, "
            "which engines of the same number are not"
        )
    return ""
