"""Scenarios: TOML files that describe a simulated cluster, its episodes and its learner.

Named scenarios are in ``scenarios/``; any other file, and the directory of a run to replay
(:mod:`launch.simulate.run_trace`), is given by its path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator

from actors.scheduler.settings import SchedulerSettings
from launch.config.loader import read_toml
from launch.settings.run import RunSettings
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.run_directory.layout import run_ids
from protocol.settings import ConfigSection, CountInt, PositiveInt, Seconds, Share, explain_errors
from protocol.staleness import DEFAULT_PUBLISH_EVERY, AdmissionMode, StaleTokenPolicy
from protocol.staleness_settings import StalenessSettings

SCENARIOS = Path(__file__).resolve().parent / "scenarios"

CURVES: dict[str, tuple[tuple[int, float], ...]] = {
    "sglang_cpu": ((1, 300.0), (16, 2840.0), (32, 3970.0), (64, 4740.0)),
    "recorded": ((1, 1.0), (4096, 4096.0)),
}
"""Throughput curves of one engine: points of (concurrent requests, tokens per second).

``sglang_cpu`` was measured by ``longshore bench engine`` with SGLang 0.5.23 and a two-layer Qwen3 on one CPU
thread.  With ``recorded`` each request takes its recorded time, whatever the load."""


_Turns: TypeAlias = Annotated[int, Field(ge=1, le=10_000)]
_MOST_TRAJECTORIES = 10_000_000
"""Maximum number of trajectories of one row, which take about an hour on one core."""


class EngineModel(ConfigSection):
    per_node: Annotated[float, Field(gt=0)] = 1 / 16
    """Number of engines per node; the cluster has at least one."""
    curve: str = "sglang_cpu"
    """Name of the throughput curve."""
    reference_load: PositiveInt = 8
    """Number of concurrent requests at which episodes take the times in ``[episode]``."""
    pause_s: Annotated[float, Field(ge=0)] = 0.05
    """Seconds that an engine pauses while it loads weights."""
    push_s: Annotated[float, Field(ge=0)] = 5.0
    """Seconds from the end of a step until all engines serve its weights; half of them do after half the time."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.curve not in CURVES:
            raise ValueError(f"engine.curve = '{self.curve}' is not measured{did_you_mean(self.curve, CURVES)}")
        return self


class EpisodeModel(ConfigSection):
    median_s: Seconds = 120.0
    p95_over_median: Annotated[float, Field(gt=1)] = 4.0
    """95th percentile over median of the log-normal durations."""
    cut_over_median: Annotated[float, Field(gt=1)] = 12.0
    """The time limit over the median; longer episodes are cut off there."""
    turns: tuple[_Turns, _Turns] = (5, 60)
    """Minimum and maximum number of turns."""
    generate_share: Annotated[float, Field(gt=0, lt=1)] = 0.6
    """Share of an episode's time that is sampling."""
    tokens_per_s: Annotated[float, Field(gt=0)] = 60.0
    """Sampling speed of one request at the reference load."""
    within_task: Share = 0.0
    """Correlation of the log-durations of a group's episodes."""
    reward: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (2.0, 2.0)
    """α and β of the Beta distribution of the tasks' pass rates."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        least, most = self.turns
        if least > most:
            raise ValueError(f"episode.turns = [{least}, {most}] has its minimum last: write [{most}, {least}]")
        return self


class LearnerModel(ConfigSection):
    groups_per_step: PositiveInt = SchedulerSettings().groups_per_step
    group_size: Annotated[int, Field(ge=2)] = SchedulerSettings().group_size
    step_s: Seconds = 240.0
    """Seconds of one step, without waiting for a batch."""
    publish_every: PositiveInt = DEFAULT_PUBLISH_EVERY
    checkpoint_every: PositiveInt = 4
    steps: PositiveInt = 40
    """Number of simulated steps."""
    warm_up: CountInt = 12
    """Number of first steps that are not measured."""

    @model_validator(mode="after")
    def _measures(self) -> Self:
        if self.warm_up >= self.steps:
            raise ValueError(
                f"learner.warm_up = {self.warm_up} leaves no step of learner.steps = {self.steps} to measure: lower it"
            )
        trajectories = self.groups_per_step * self.group_size * self.steps
        if trajectories > _MOST_TRAJECTORIES:
            raise ValueError(
                f"learner: {self.groups_per_step} groups_per_step of group_size {self.group_size} in {self.steps} "
                f"steps are {trajectories:,} trajectories, which would take hours: lower one until they are at most "
                f"{_MOST_TRAJECTORIES:,}"
            )
        return self


class FaultModel(ConfigSection):
    nodes_per_hour: Share = 0.005
    """Share of the nodes that fail in an hour; each comes back after ``repair_s``."""
    repair_s: Seconds = 300.0


_NOT_EMPTY = Field(min_length=1)


class SimulationMatrix(ConfigSection):
    """The simulated settings, unless the command line gives others."""

    nodes: Annotated[tuple[PositiveInt, ...], _NOT_EMPTY] = (64,)
    mode: Annotated[tuple[AdmissionMode, ...], _NOT_EMPTY] = (RunSettings().mode,)
    policy: Annotated[tuple[StaleTokenPolicy, ...], _NOT_EMPTY] = (StalenessSettings().policy,)
    max_staleness: Annotated[tuple[CountInt, ...], _NOT_EMPTY] = (StalenessSettings().max_staleness,)
    in_flight: Annotated[tuple[PositiveInt, ...], _NOT_EMPTY] = (1024,)


class Scenario(ConfigSection):
    name: Annotated[str, Field(pattern="^[^/]*$")] = ""
    """Name of the scenario, and of its report's folder in ``simulations/``."""
    about: str = ""
    """Description in one line."""
    run: str = ""
    """Path of a run's directory or a trace file to replay, relative to the scenario's folder."""
    engine: EngineModel = EngineModel()
    episode: EpisodeModel = EpisodeModel()
    learner: LearnerModel = LearnerModel()
    faults: FaultModel = FaultModel()
    matrix: SimulationMatrix = SimulationMatrix()


def scenario_names() -> list[str]:
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file.  Raises UserError."""
    try:
        values = read_toml(path)
    except OSError as error:
        raise UserError(f"cannot read the scenario {path}: {error.strerror}") from error
    try:
        return Scenario.model_validate({"name": path.stem, **values})
    except ValidationError as error:
        raise explain_errors(Scenario, error, f"scenario {path.name}") from error


def find_scenario(name_or_path: str) -> Path:
    """Return the path of a scenario by its name, or of a scenario file or run, given as a path.  Raises UserError."""
    given = Path(name_or_path)
    if given.suffix == ".toml" or given.exists() or "/" in name_or_path:
        if not given.exists():
            raise UserError(f"no such scenario file or run directory: {given}; the named scenarios are {_names()}")
        return given
    if name_or_path not in scenario_names():
        raise UserError(
            f"no scenario or run is called '{name_or_path}': give {_names()}, a TOML file's path, or a run's id or "
            f"directory{did_you_mean(name_or_path, [*scenario_names(), *run_ids()])}"
        )
    return SCENARIOS / f"{name_or_path}.toml"


def _names() -> str:
    return ", ".join(scenario_names())
