"""Writes the directory of a long synthetic run with the product's own writers: journal, export, events, metrics,
``trained/``, ``activity/`` and recordings.  Its episodes have one size, and its clock is simulated, so that weeks take
minutes to write.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import orjson

from launch.run_records.metrics_log import MetricsLog
from launch.run_records.step_facts import StepFacts
from protocol import codec
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import ClosedGroup, Journal, JournalSettings, TrajectoryArrival
from protocol.run_directory.lineage_log import LineageLog
from protocol.run_directory.terminal_recordings import CastWriter, turn_marker_label
from protocol.run_directory.trained_log import PackedTrainedTokens, TrainedLog, TrainedTokens, pack_trained_tokens
from protocol.run_directory.trajectory_export import TrajectoryExporter
from protocol.trajectory import (
    EpisodeStatus,
    GroupId,
    Reward,
    RolloutRequest,
    Segment,
    TestResult,
    Trajectory,
    Turn,
    TurnKind,
)
from protocol.weights import NO_VERSION, LineageEntry, WeightVersion, make_version

GROUP_SIZE, GROUPS_PER_STEP, WORKERS = 8, 8, 4
_TURNS, _TURN_TOKENS, _PROMPT_TOKENS = 4, 32, 64
_RECORDED = 256
"""Number of last episodes that have a recording; recordings may be deleted at any time."""
_EPISODE_S = 2.0
_START = 1_790_000_000.0
_STATUSES = (
    EpisodeStatus.COMPLETED,
    EpisodeStatus.COMPLETED,
    EpisodeStatus.TURN_LIMIT,
    EpisodeStatus.MALFORMED_LIMIT,
    EpisodeStatus.CONTEXT_LIMIT,
)
_METRICS = (
    *(
        "loss",
        "grad_norm",
        "entropy",
        "clip_high",
        "clip_low",
        "clip_dual",
        "kl_k1",
        "kl_k3",
        "staleness_mean",
        "staleness_max",
    ),
    *("ess", "ess_sequence", "mismatch_max", "parity_k3", "trained_share", "trained_tokens", "masked_tokens"),
    *("sampled_tokens", "turns", "lr", "seconds", "tokens_per_s", "part_outcome", "part_tool_calls", "trajectories"),
)


_Arrived: TypeAlias = tuple[Trajectory, codec.TrajectorySummary, TrajectoryArrival]


@dataclass(slots=True)
class _Clock:
    t: float = _START

    def __call__(self) -> float:
        return self.t


@dataclass(slots=True)
class SyntheticRun:
    """Writes ``run_dir``, once, by :meth:`write`."""

    run_dir: Path
    clock: _Clock = field(default_factory=_Clock)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    step: int = 0
    version: WeightVersion = field(default_factory=lambda: make_version(1, 0))
    trajectories: int = 0

    def write(self, count: int) -> int:
        """Write at least ``count`` acknowledged trajectories and return their number."""
        self._begin()
        settings = JournalSettings(
            run_id=self.run_dir.name, max_trajectory_bytes=1 << 16, budget_bytes=1 << 30, dynamic_sampling=True
        )
        journal = Journal(self.run_dir / "buffer" / "journal.sqlite", settings)
        try:
            while self.trajectories < count:
                self._write_groups(journal, last=self.trajectories + _RECORDED >= count)
                self._write_steps(journal)
        finally:
            journal.close()
        self._emit("driver-1", "run.phase", phase="shutdown", detail="")
        for log in self._logs.values():
            log.close()
        return self.trajectories

    _logs: dict[str, EventLog] = field(init=False)
    _exporter: TrajectoryExporter = field(init=False)
    _trained: TrainedLog = field(init=False)
    _metrics: MetricsLog = field(init=False)
    _lineage: LineageLog = field(init=False)
    _activity_logs: list[ActivityLog] = field(init=False)
    _untrained: dict[str, Trajectory] = field(init=False)
    """Groups that no step has used yet."""

    def _begin(self) -> None:
        self.run_dir.mkdir(parents=True)
        config = {"run": {"name": "history", "steps": 10**6, "mode": "async"}, "staleness": {"max_staleness": 2}}
        (self.run_dir / "config.json").write_bytes(orjson.dumps({"config": config}))
        names = ["driver-1", "buffer", "scheduler", "engine-0", *(f"worker-0-{n}" for n in range(WORKERS))]
        self._logs = {name: EventLog(self.run_dir, name, "node-0", self.clock, steady=None) for name in names}
        self._exporter = TrajectoryExporter(self.run_dir, now=self.clock)
        self._trained = TrainedLog(self.run_dir, now=self.clock)
        self._metrics = MetricsLog(self.run_dir, self.clock, self.clock)
        self._lineage = LineageLog(self.run_dir)
        self._lineage.append(LineageEntry(self.version, 0, NO_VERSION))
        self._activity_logs = [ActivityLog(self.run_dir, name, "worker", self.clock, self.clock) for name in names[4:]]
        self._untrained = {}
        options = {
            "run": self.run_dir.name,
            "recipe": "history",
            "mode": "async",
            "nodes": 1,
            "seed": 0,
            "steps": 10**6,
        }
        self._logs["driver-1"].emit("run.started", **options, max_staleness=2, evaluates=False, url="")
        self._emit("driver-1", "run.phase", phase="training", detail="")

    def _emit(self, writer: str, kind: str, **fields: object) -> None:
        self._logs[writer].emit(kind, **fields)  # pyright: ignore[reportArgumentType]  these are all JSON

    def _write_groups(self, journal: Journal, *, last: bool) -> None:
        """Write the groups of one step with their episodes."""
        arrivals: list[_Arrived] = []
        for _ in range(GROUPS_PER_STEP):
            group = GroupId(self.trajectories // GROUP_SIZE)
            task = f"{('sort', 'count', 'rename', 'parse')[group % 4]}-{group % 200:03d}"
            journal.open_group(GroupPlan(group, task, tuple(range(GROUP_SIZE))), b"{}")
            self._emit(
                "scheduler", "group.admitted", group=group, task=task, reason="for a step", expected_staleness=0.5
            )
            self._emit("buffer", "group.opened", group=group, task=task, size=GROUP_SIZE)
            for sample in range(GROUP_SIZE):
                arrivals.append(self._write_episode(group, sample, task, recorded=last))
                self.trajectories += 1
        _, closed = journal.append_batch([arrival for *_, arrival in arrivals])
        for trajectory, summary, arrival in arrivals:
            self._exporter.export_trajectory(summary, arrival.blob)
            self._untrained[arrival.request.trajectory_id] = trajectory
            self._stored(summary)
        for group in closed:
            self._closed(group)

    def _write_episode(
        self, group: GroupId, sample: int, task: str, *, recorded: bool
    ) -> tuple[Trajectory, codec.TrajectorySummary, TrajectoryArrival]:
        worker = self.trajectories % WORKERS
        name, writer = f"train-g{group:06d}-s{sample:02d}-a0", f"worker-0-{worker}"
        facts = {"group": group, "sample": sample, "task": task, "family": task.partition("-")[0], "worker": writer}
        instruction = "Sort the lines of /work/input.txt by the second column, and write them to /work/answer.txt."
        self._emit(writer, "episode.started", trajectory=name, **facts, instruction=instruction)
        self._emit(writer, "sandbox.started", trajectory=name[:-3])
        for turn in range(_TURNS):
            self.clock.t += _EPISODE_S / WORKERS / GROUP_SIZE / _TURNS
            with self._activity_logs[worker].track("generating"):
                self.clock.t += 0.01
            versions = [self.version, self.version]
            self._emit(
                writer, "episode.turn", trajectory=name, turn=turn, sampled=_TURN_TOKENS, versions=versions, ms=9.5
            )
            self._emit(writer, "episode.tool", trajectory=name, tool="shell_exec", command=f"sort -k2 input-{turn}.txt")
        self._activity_logs[worker].write_if_changed()
        trajectory = self._trajectory(group, sample, task)
        if recorded:
            self._write_recording(name, instruction)
        ms = {"acquire": 12.0, "generate": 900.0, "tool": 140.0, "grade": 220.0, "total": 1_300.0}
        status, reward = trajectory.status.value, trajectory.reward.total
        self._emit(writer, "episode.finished", trajectory=name, status=status, reward=reward, parts={"outcome": reward},
                   sampled=trajectory.sampled_tokens, turns=_TURNS, ms=ms)  # fmt: skip
        frames = codec.encode_trajectory(trajectory)
        summary, blob = codec.inspect_frames(frames, max_bytes=1 << 20), codec.pack_frames(frames)
        arrival = TrajectoryArrival(
            *(trajectory.request, reward, trajectory.passed, trajectory.status),
            *(summary.digest, blob, summary.sampled),
        )
        return trajectory, summary, arrival

    def _trajectory(self, group: GroupId, sample: int, task: str) -> Trajectory:
        reward = self.rng.choice((0.0, 0.25, 0.5, 1.0)) if group % 10 else 1.0
        rollout_request = RolloutRequest(self.run_dir.name, group, sample, GROUP_SIZE, task, seed=sample)
        return Trajectory(
            rollout_request,
            self.rng.choice(_STATUSES),
            Reward(reward, {"outcome": reward}),
            (_segment(self.version, sample),),
            tests=(TestResult("sorted", reward > 0.2), TestResult("whole", reward > 0.7)),
            engine="engine-0",
            node="node-0",
            worker=f"worker-0-{self.trajectories % WORKERS}",
            started_at=self.clock.t,
            timings_ms={"generate": 900.0, "tool": 140.0, "grade": 220.0, "total": 1_300.0},
        )

    def _write_recording(self, name: str, instruction: str) -> None:
        with CastWriter.open(
            self.run_dir / "terminals" / f"{name}.cast", 100, 30, instruction, clock=self.clock
        ) as cast:
            for turn in range(_TURNS):
                cast.record_marker(turn_marker_label(turn))
                cast.record_note("I will sort the file.")
                cast.record_command(f"sort -k2 input-{turn}.txt")
                cast.record_output("alpha 12\nbeta 7\n")

    def _stored(self, summary: codec.TrajectorySummary) -> None:
        rollout_request = summary.request
        self._emit("buffer", "trajectory.stored", trajectory=rollout_request.trajectory_id, group=rollout_request.group,
                   sample=rollout_request.sample, outcome="appended", status=summary.status.value,
                   reward=summary.reward.total, tokens=summary.tokens, sampled=summary.sampled,
                   versions_min=summary.versions[0], versions_max=summary.versions[-1])  # fmt: skip
        worker = f"worker-0-{rollout_request.sample % WORKERS}"
        self._emit(
            worker, "trajectory.acknowledged", trajectory=rollout_request.trajectory_id, attempt=0, outcome="appended"
        )

    def _closed(self, group: ClosedGroup) -> None:
        rewards = [group.rewards.get(sample) for sample in range(group.size)]
        self._emit("buffer", "group.closed", group=group.group, task=group.task, outcome=group.outcome.value,
                   size=group.size, rewards=rewards)  # fmt: skip
        if group.outcome is not GroupOutcome.READY:
            for sample in group.rewards:
                self._untrained.pop(f"train-g{group.group:06d}-s{sample:02d}")

    def _write_steps(self, journal: Journal) -> None:
        """Return one entry for each batch."""
        while (lease := journal.lease_batch(GROUPS_PER_STEP)) is not None:
            self.step += 1
            names = lease.trajectory_ids
            journal.mark_trained(self.step, names, {})
            self._trained.record_step(
                self.step, self.version, names, {}, {name: self._token_record(name) for name in names}
            )
            if self.step % 20 == 0:
                journal.commit_checkpoint(self.step)
                journal.compact_payloads(self.step)
            self._write_metrics(len(lease.groups), len(names))
            parent, self.version = self.version, make_version(1, self.step)
            self._lineage.append(LineageEntry(self.version, self.step, parent))
            self._emit("engine-0", "engine.loaded", engine="engine-0", version=self.version, pause_ms=21.0, load_ms=7.0)

    def _token_record(self, name: str) -> PackedTrainedTokens:
        (segment,) = self._untrained.pop(name).segments
        trained = segment.loss_mask == 1
        logprobs = np.where(trained, segment.logprobs - np.float32(0.01), np.float32(np.nan))
        advantages = np.where(trained, np.float32(0.5), np.float32(np.nan))
        return PackedTrainedTokens(
            pack_trained_tokens(TrainedTokens(logprobs, advantages, np.zeros(len(trained), np.uint8))), 0.5, 0.01
        )

    def _write_metrics(self, groups: int, trained: int) -> None:
        self.clock.t += 1.0
        facts = StepFacts(
            step=self.step,
            rewards=[0.5] * trained,
            passed=trained // 2,
            zero_variance_groups=0,
            groups=groups,
            trained=trained,
            dropped={},
            staleness_histogram=[trained * 100, trained * 20],
            sampled_tokens=trained * 128,
            wait_s=0.3,
            step_s=1.0,
            pause_ms=21.0,
        )
        line = self._metrics.append_step(facts, {name: self.rng.random() for name in _METRICS})
        self._logs["driver-1"].emit("learner.step", **line)


def _segment(version: WeightVersion, sample: int) -> Segment:
    """Return a segment with a prompt, then turns and observations."""
    turns = [Turn(TurnKind.PROMPT, 0, _PROMPT_TOKENS)]
    tokens = _PROMPT_TOKENS + 2 * _TURNS * _TURN_TOKENS
    mask = np.zeros(tokens, np.uint8)
    for start in range(_PROMPT_TOKENS, tokens, 2 * _TURN_TOKENS):
        middle = start + _TURN_TOKENS
        mask[start:middle] = 1
        turns += [
            Turn(TurnKind.MODEL, start, middle, duration_ms=9.5, key_version=version),
            Turn(TurnKind.OBSERVATION, middle, middle + _TURN_TOKENS, "shell_exec", 0, 31.0),
        ]
    rng = np.random.default_rng(sample)
    logprobs = (-rng.random(tokens, np.float32) * mask).astype(np.float32)
    versions = np.where(mask == 1, np.int32(version), np.int32(-1)).astype(np.int32)
    return Segment(rng.integers(0, 1000, tokens, np.int32), mask, logprobs, versions, tuple(turns))


def write_synthetic_run(run_dir: Path, trajectories: int) -> int:
    """Write the run in whole steps of at least this many trajectories, and return their number."""
    return SyntheticRun(run_dir).write(trajectories)
