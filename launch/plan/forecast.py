"""Forecasts speed, staleness, idle shares and the bottleneck of a run by simulation.

Episodes and steps come from a trace (a run's directory or the simulator's record of one) or from a scenario;
concurrency, step size and staleness bound from the configuration.  A step's time is proportional to its trajectories.
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

_MAX_STEPS = 100
"""Number of simulated steps; a longer run continues alike."""
_DRAWN = 1000
"""Number of episodes drawn from a scenario for its means."""
_BUSY_IDLE_SHARE = 0.1
"""Idle share of the learner below which it is the bottleneck."""
_FULL_SHARE = 0.9
"""Share of the rollout capacity in use above which rollout is the bottleneck."""


class Bottleneck(StrEnum):
    """Bottleneck of a run."""

    LEARNER = "learner"
    ROLLOUT = "rollout"
    STALENESS = "staleness"

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Bottleneck.LEARNER: "the learner always has a batch: more learner.ranks make it faster, more engines do not",
    Bottleneck.ROLLOUT: "the rollout capacity is full and the learner waits: more engines and sandboxes "
    "(rollout.in_flight, engine.count, more machines) make it faster",
    Bottleneck.STALENESS: "the learner waits because the staleness bound holds rollouts back: "
    "raise staleness.max_staleness, or lower learner.publish_every",
}


@dataclass(frozen=True, slots=True)
class ForecastBasis:
    """Measured or assumed durations of episodes and steps."""

    source: str
    workload: EpisodeWorkload
    scenario: Scenario
    step_s: tuple[float, ...]
    """Seconds of each measured step; the sequence repeats."""
    episodes_per_step: int
    """Number of episodes in each of these steps."""
    episode_s: float
    """Mean seconds of an episode from request to acknowledgement."""
    generate_s: float
    """Mean seconds of generation in an episode."""
    in_flight: int
    """Measured number of concurrent episodes; 0 if not measured."""

    def busy_s(self, episodes: int) -> tuple[float, ...]:
        """Return the seconds of steps with ``episodes`` trajectories."""
        return tuple(seconds * episodes / self.episodes_per_step for seconds in self.step_s)


def basis_from_trace(trace: RunTrace, rollout: RolloutTable) -> ForecastBasis:
    """Return the basis of a run; groups of another size reuse the measured members."""
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
    """Return the basis of a scenario, whose episodes are drawn at random."""
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
    plans = [workload.plan_episode(_request(number)) for number in range(_DRAWN)]
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


def _request(number: int) -> RolloutRequest:
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
    """Share of the sampled tokens that are trained."""
    in_flight: float
    """Mean number of concurrent episodes at the ends of steps."""
    capacity: int
    learner_idle: float
    engine_idle: float
    dropped_share: float
    """Share of the trajectories dropped for zero variance or staleness."""
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
            "capacity": self.capacity,
            "learner_idle": round(self.learner_idle, 4),
            "engine_idle": round(self.engine_idle, 4),
            "dropped_share": round(self.dropped_share, 4),
            "bottleneck": self.bottleneck.value,
            "advice": self.bottleneck.advice,
        }


def forecast_run(config: RunConfig, basis: ForecastBasis, seed: int = 0) -> Forecast:
    """Simulate the run.

    Raises SimulationStalledError if it would make no step, UserError if it cannot be simulated."""
    if config.colocated:
        raise UserError(
            "cluster.placement = 'colocated' cannot be simulated: "
            "leave --from and --scenario out, or plan with --set cluster.placement=separate"
        )
    capacity, steps = max_episodes(config), min(config.run.steps, _MAX_STEPS)
    busy_s = basis.busy_s(config.rollout.episodes_per_step)
    cell = SimulationSettings(
        config.cluster.nodes, config.run.mode, config.staleness.policy, config.staleness.max_staleness, capacity
    )
    replayed = ReplayOverrides(lambda step: busy_s[(step - 1) % len(busy_s)], config.dynamic_sampling)
    outcome = simulate(_scenario(config, basis, steps), cell, basis.workload, seed, replayed)
    return _summarise(basis.source, outcome, steps, capacity, config.rollout.episodes_per_step)


def max_episodes(config: RunConfig) -> int:
    """Return the maximum number of concurrent episodes that engines and workers allow; simulated nodes share one
    machine's."""
    rollout, nodes = config.rollout, config.cluster.nodes
    each = rollout.episodes_per_worker if config.cluster.address else rollout.episodes_per_worker_of(nodes)
    wanted = rollout.in_flight or config.engine.count * config.engine.max_running
    return min(wanted, nodes * rollout.workers_per_node * each)


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


def _summarise(source: str, outcome: SimulationResult, steps: int, capacity: int, episodes_per_step: int) -> Forecast:
    account, staleness = outcome.account, outcome.account.tokens_by_staleness()
    trained, idle = max(1, account.trained), account.waited_s / account.seconds
    in_flight = mean(sample.in_flight for sample in account.samples)
    dropped = sum(outcome.dropped.values())
    return Forecast(
        source=source,
        steps_per_hour=3600 * steps / account.seconds,
        trained_tokens_per_s=account.trained / account.seconds,
        staleness_mean=sum(steps * tokens for steps, tokens in enumerate(staleness)) / trained,
        staleness_max=max((steps for steps, tokens in enumerate(staleness) if tokens), default=0),
        trained_share=account.trained / max(1, account.sampled),
        in_flight=in_flight,
        capacity=capacity,
        learner_idle=idle,
        engine_idle=outcome.engine_idle,
        dropped_share=dropped / (dropped + steps * episodes_per_step),
        bottleneck=Bottleneck.LEARNER
        if idle < _BUSY_IDLE_SHARE
        else Bottleneck.ROLLOUT
        if in_flight > _FULL_SHARE * capacity
        else Bottleneck.STALENESS,
    )


@dataclass(frozen=True, slots=True)
class ResourceNeeds:
    """Resources with which the learner never waits, by Little's law: concurrency is arrival rate times duration."""

    sandboxes: int
    engines: int
    hosts: int
    """Number of machines for the sandboxes."""

    def as_json(self) -> dict[str, JsonValue]:
        return {"sandboxes": self.sandboxes, "engines": self.engines, "hosts": self.hosts}


def estimate_needs(config: RunConfig, basis: ForecastBasis, dropped_share: float) -> ResourceNeeds:
    """Return the needs of a learner that never waits if ``dropped_share`` of the trajectories is not trained."""
    episodes = config.rollout.episodes_per_step
    arrivals_per_s = episodes / (1 - dropped_share) / mean(basis.busy_s(episodes))
    sandboxes = math.ceil(arrivals_per_s * basis.episode_s)
    return ResourceNeeds(
        sandboxes=sandboxes,
        engines=math.ceil(arrivals_per_s * basis.generate_s / config.engine.max_running),
        hosts=math.ceil(sandboxes / config.sandbox.capacity_per_node),
    )


def forecast_caveat(config: RunConfig, basis: ForecastBasis) -> str:
    """Return what makes the forecast uncertain; empty if everything was measured."""
    if not basis.in_flight:
        return "episodes and steps are assumed, not measured: --from RUN takes measured ones"
    now, then = max_episodes(config), basis.in_flight
    if max(now, then) > 1.25 * min(now, then):
        return (
            f"{then} concurrent episodes were measured, and here {now} would run: the forecast assumes that each is as "
            "fast, which needs engines in proportion"
        )
    return ""
