"""Traces of real runs for the simulator: the duration of each turn, of each episode and of each learner step.

:func:`extract_trace` derives a trace from the exported trajectories, events and metrics of a run's directory, and
:func:`write_trace` stores it as one small file.  A replay repeats the episodes group by group in the order of the run,
with their recorded durations; only the waiting is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.run_records.metrics_log import read_metrics
from launch.run_records.stored_config import load_stored_config
from launch.simulate.episode_workload import EpisodePlan, RecordedWorkload, TurnPlan
from launch.simulate.scenario import Scenario
from launch.simulate.simulated_cluster import ReplayOverrides, SimulationSettings
from protocol.cli.validation_errors import first_invalid_value
from protocol.errors import UserError
from protocol.run_directory.json_fields import get_text
from protocol.run_directory.plain_files import require_plain_files
from protocol.run_directory.run_tail import read_events
from protocol.run_directory.trajectory_export import (
    UnreadableTrajectoryError,
    read_export_index,
    read_exported_trajectory,
)
from protocol.settings import CountInt, PositiveInt
from protocol.staleness import AdmissionMode, StaleTokenPolicy
from protocol.trajectory import Trajectory, TurnKind

_EVENT_KINDS = ("node.up", "episode.started", "trajectory.stored", "weights.published", "engine.loaded")
_EventsByKind: TypeAlias = dict[str, list[dict[str, Any]]]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TraceStep(_Part):
    """The measurements of one optimizer step."""

    busy_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Time since the previous step without the wait for a batch."""
    wait_s: _Seconds
    trained_tokens: Annotated[int, Field(ge=0)]
    staleness_mean: Annotated[float, Field(ge=0)]


class TraceEpisode(_Part):
    acquire_s: _Seconds
    turns: list[tuple[Annotated[int, Field(ge=0)], _Seconds, _Seconds]]
    """(tokens sampled, seconds of the engine, seconds of the tool)"""
    rest_s: _Seconds
    """Remaining time until the acknowledgement: grading, sending and others."""
    reward: Annotated[float, Field(allow_inf_nan=False)]


class TraceFile(_Part):
    """The content of a trace file."""

    run: str
    nodes: PositiveInt
    in_flight: PositiveInt
    mode: AdmissionMode
    policy: StaleTokenPolicy
    max_staleness: CountInt
    groups_per_step: PositiveInt
    group_size: Annotated[PositiveInt, Field(ge=2)]
    publish_every: PositiveInt
    checkpoint_every: PositiveInt
    dynamic_sampling: bool
    push_s: _Seconds
    """Time from a publication until all engines served it."""
    steps: Annotated[list[TraceStep], Field(min_length=1)]
    groups: Annotated[list[list[TraceEpisode]], Field(min_length=1)]
    """Complete groups in the order in which they were opened."""

    @field_validator("steps")
    @classmethod
    def _trained(cls, steps: list[TraceStep]) -> list[TraceStep]:
        if not any(step.trained_tokens for step in steps):
            raise ValueError("no step has trained a token")
        return steps

    @field_validator("groups")
    @classmethod
    def _whole(cls, groups: list[list[TraceEpisode]], info: ValidationInfo) -> list[list[TraceEpisode]]:
        size = info.data.get("group_size", 0)
        if any(len(members) != size for members in groups):
            raise ValueError(f"each group has to have group_size = {size} episodes")
        return groups


@dataclass(frozen=True, slots=True)
class TraceMeasurement:
    trained_tokens_per_s: float
    staleness_mean: float


@dataclass(frozen=True, slots=True)
class RunTrace:
    file: TraceFile

    @property
    def workload(self) -> RecordedWorkload:
        episodes = {
            (group, sample): EpisodePlan(
                each.acquire_s, [TurnPlan(*turn) for turn in each.turns], each.rest_s, each.reward
            )
            for group, members in enumerate(self.file.groups)
            for sample, each in enumerate(members)
        }
        return RecordedWorkload(episodes, len(self.file.groups))

    @property
    def replay_overrides(self) -> ReplayOverrides:
        steps = self.file.steps
        return ReplayOverrides(lambda step: steps[(step - 1) % len(steps)].busy_s, self.file.dynamic_sampling)

    @property
    def measured(self) -> TraceMeasurement:
        """The run's own throughput and staleness, over all its steps."""
        steps = self.file.steps
        tokens = sum(step.trained_tokens for step in steps)
        seconds = sum(step.busy_s + step.wait_s for step in steps)
        return TraceMeasurement(
            tokens / seconds, sum(step.staleness_mean * step.trained_tokens for step in steps) / tokens
        )

    @property
    def settings(self) -> SimulationSettings:
        """The settings of the run."""
        scenario = self.scenario.matrix
        return SimulationSettings(
            scenario.nodes[0], scenario.mode[0], scenario.policy[0], scenario.max_staleness[0], scenario.in_flight[0]
        )

    @property
    def scenario(self) -> Scenario:
        file = self.file
        return Scenario.model_validate(
            {
                "name": file.run,
                "about": f"replay of the run {file.run}",
                "engine": {
                    "curve": "recorded",
                    "reference_load": 1,
                    "per_node": 1 / file.nodes,
                    "push_s": file.push_s,
                    "pause_s": 0.0,
                },
                "learner": {
                    "groups_per_step": file.groups_per_step,
                    "group_size": file.group_size,
                    "publish_every": file.publish_every,
                    "checkpoint_every": file.checkpoint_every,
                    "steps": len(file.steps),
                    "warm_up": 0,
                },
                "faults": {"nodes_per_hour": 0.0},
                "matrix": {
                    "nodes": [file.nodes],
                    "mode": [file.mode],
                    "policy": [file.policy],
                    "max_staleness": [file.max_staleness],
                    "in_flight": [file.in_flight],
                },
            }
        )


def read_trace(path: Path) -> RunTrace:
    """Read a trace file, or extract the trace of a run's directory.  Raises UserError."""
    if path.is_dir():
        return RunTrace(extract_trace(path))
    try:
        return RunTrace(TraceFile.model_validate_json(path.read_bytes()))
    except OSError as error:
        raise UserError(f"cannot read the trace {path}: {error.strerror}") from error
    except ValidationError as error:
        where, why = first_invalid_value(error)
        raise UserError(
            f"{path} is not a trace: {f'{where}: ' if where else ''}{why}; write one with --write-trace"
        ) from error


def write_trace(trace: RunTrace, path: Path) -> None:
    """Write the trace as one file.  Raises UserError."""
    try:
        path.write_bytes(orjson.dumps(trace.file.model_dump()) + b"\n")
    except OSError as error:
        raise UserError(f"--write-trace: cannot write {path}: {error.strerror}") from error


def extract_trace(run_dir: Path, steps: int | None = None) -> TraceFile:
    """Return the trace of the first ``steps`` steps of a run (default: all).  Raises UserError if there is nothing to
    extract."""
    require_plain_files(run_dir)
    config = load_stored_config(run_dir)
    lines, events = read_metrics(run_dir)[:steps], _read_events_by_kind(run_dir)
    groups = list(_complete_groups(run_dir, events, config.rollout.group_size))
    if not lines or not groups:
        raise UserError(
            f"{run_dir} has no optimizer step, or no group whose episodes can all be read: name another run"
        )
    last_t = lines[-1]["t"]
    return TraceFile(
        run=run_dir.name,
        nodes=config.cluster.nodes,
        in_flight=_in_flight(config, events),
        mode=config.run.mode,
        policy=config.staleness.policy,
        max_staleness=config.staleness.max_staleness,
        groups_per_step=config.rollout.groups_per_step,
        group_size=config.rollout.group_size,
        publish_every=config.publish_every,
        checkpoint_every=config.checkpoint.every_steps,
        dynamic_sampling=config.dynamic_sampling,
        push_s=round(_push_s(events), 4),
        steps=[
            TraceStep(
                busy_s=max(0.001, round(line["elapsed_s"] - line["wait_s"], 3)),
                wait_s=line["wait_s"],
                trained_tokens=int(line["trained_tokens"]),
                staleness_mean=line["staleness_mean"],
            )
            for line in lines
        ],
        groups=[members for began, members in groups if began < last_t],
    )


def _in_flight(config: RunConfig, events: _EventsByKind) -> int:
    """Return the number of concurrent episodes: the configured one, limited by the capacity of the workers."""
    from launch.hosts.placement import share_docker_engine

    addresses = {str(event["name"]): str(event.get("address", "")) for event in events["node.up"]}
    names = [f"node-{index}" for index in range(config.cluster.nodes)]
    nodes = [ClusterNode(name, "", addresses.get(name, "")) for name in names]
    capacity = len(nodes) * config.rollout.workers_per_node * share_docker_engine(config, nodes).episodes
    return min(config.in_flight, capacity)


def _complete_groups(run_dir: Path, events: _EventsByKind, size: int) -> Iterator[tuple[float, list[TraceEpisode]]]:
    """Yield (start of the first episode, episodes by sample) for every group whose samples all arrived and can be
    read."""
    began = dict(_times(events["episode.started"]))
    acknowledged = dict(_times(events["trajectory.stored"]))
    members: dict[int, dict[int, tuple[float, TraceEpisode]]] = {}
    for entry in read_export_index(run_dir):
        name = entry.trajectory
        if name in began and name in acknowledged:
            try:
                trajectory = read_exported_trajectory(run_dir, entry)
            except UnreadableTrajectoryError:  # its group stays incomplete and is left out
                continue
            episode = _episode(trajectory, acknowledged[name] - began[name])
            members.setdefault(entry.group, {})[entry.sample] = began[name], episode
    for _, group in sorted(members.items()):
        if len(group) == size:
            yield min(t for t, _ in group.values()), [episode for _, (_, episode) in sorted(group.items())]


def _episode(trajectory: Trajectory, seconds: float) -> TraceEpisode:
    """``seconds`` is the time from the start of the episode to its acknowledgement."""
    turns: list[tuple[int, float, float]] = []
    for segment in trajectory.segments:
        for turn in segment.turns:
            if turn.kind is TurnKind.MODEL:
                turns.append((turn.end - turn.start, max(0.001, round(turn.duration_ms / 1000, 3)), 0.0))
            elif turn.kind is TurnKind.OBSERVATION and turns:
                tokens, generate_s, _ = turns[-1]
                turns[-1] = tokens, generate_s, round(turn.duration_ms / 1000, 3)
    acquire_s = round(trajectory.timings_ms.get("acquire", 0.0) / 1000, 3)
    known_s = acquire_s + sum(generate_s + tool_s for _, generate_s, tool_s in turns)
    rest_s = max(0.0, round(seconds - known_s, 3))
    return TraceEpisode(acquire_s=acquire_s, turns=turns, rest_s=rest_s, reward=trajectory.reward.total)


def _push_s(events: _EventsByKind) -> float:
    """Return the median time from a publication until all engines served it."""
    published = {event["version"]: event["t"] for event in events["weights.published"]}
    served: dict[int, float] = {}
    for event in events["engine.loaded"]:
        served[event["version"]] = max(event["t"], served.get(event["version"], 0.0))
    return median([served[version] - t for version, t in published.items() if version in served] or [0.0])


def _times(events: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield (trajectory without its attempt, time) for each event, oldest first, so that the last attempt counts."""
    for event in events:
        yield str(event["trajectory"]).partition("-a")[0], float(event["t"])


def _read_events_by_kind(run_dir: Path) -> _EventsByKind:
    found: _EventsByKind = {kind: [] for kind in _EVENT_KINDS}
    for event in read_events(run_dir):
        if (kind := get_text(event, "kind")) in found:
            found[kind].append(event)
    return found
