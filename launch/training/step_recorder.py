"""Records optimizer steps: one line of metrics for each, and what happened to each trajectory, for readers.

Groups that close are collected between two steps, so that the metrics of a step hold the rewards of every group that
closed since the step before, trained or dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from actors.buffer.trajectory_buffer import BufferStatistics, TrajectoryBuffer
from actors.runtime.remote import Remote
from launch.evaluation.held_out.online_evaluator import EvaluationHooks
from launch.run_records.metrics_log import MetricsLog, read_dropped_tokens
from launch.run_records.step_facts import StepFacts, TokensByLength, count_increase
from launch.training.parity_checker import ParityChecker
from launch.weight_sync.manager import WeightSyncManager
from learner.messages import StepReport
from protocol.events import EventLog
from protocol.groups import GroupOutcome
from protocol.run_directory.trained_log import TrainedLog
from protocol.weights import WeightVersion


@dataclass(slots=True, kw_only=True)
class StepRecorder:
    """Writes a step's metrics and events, and what happened to each of its trajectories."""

    run_dir: Path
    metrics: MetricsLog
    events: EventLog
    buffer: Remote[TrajectoryBuffer]
    weight_sync: WeightSyncManager
    parity: ParityChecker
    online_evaluation: EvaluationHooks
    sampled_tokens: Callable[[], Awaitable[int]]
    """Returns the number of tokens that the engines have sampled so far."""
    judge_tokens: Callable[[], Awaitable[int | None]]
    """Returns that of the engines of the run's own judge; None without one."""
    _trained_log: TrainedLog = field(init=False)
    _progress_seq: int = -1
    _rewards: list[float] = field(default_factory=list[float])
    _passed: int = 0
    _zero_variance: int = 0
    _sampled: int = 0
    """Tokens that the engines had sampled at the last step."""
    _judged: int | None = None
    """Tokens that the judge's engines had."""
    _dropped_tokens: TokensByLength = field(default_factory=dict[str, dict[str, int]])
    """Tokens of dropped trajectories that are already in the metrics."""
    _export_failures: int = 0
    _reported_unrecorded: bool = False

    def __post_init__(self) -> None:
        self._trained_log = TrainedLog(self.run_dir)

    async def start(self) -> None:
        """Start the rates and token counts of the next step here."""
        self._sampled, self._judged = await self.sampled_tokens(), await self.judge_tokens()
        self.metrics.start_clock()

    async def rewind(self, step: int) -> None:
        """Record that the steps after ``step`` are discarded."""
        self.metrics.rewind(step)
        await asyncio.to_thread(self._trained_log.record_rewind, step)
        self._dropped_tokens = read_dropped_tokens(self.run_dir)

    async def collect_closed_groups(self, timeout_s: float) -> None:
        """Count the groups that have closed; wait up to ``timeout_s`` for the buffer to make progress."""
        progress = await self.buffer.call(TrajectoryBuffer.wait_progress, self._progress_seq, timeout_s)
        self._progress_seq = progress.seq
        for closing in progress.closed:
            self._rewards += closing.rewards.values()
            self._passed += len(closing.passed)
            self._zero_variance += closing.outcome is GroupOutcome.ZERO_VARIANCE

    async def write_trained_log(self, report: StepReport, version: WeightVersion) -> None:
        """Write what the step did with each trajectory and token of its batch; it started from ``version``.  A failure
        is an alert, once."""
        dropped = {name: reason.value for name, reason in report.dropped.items()}
        step = report.step if report.trained else None
        await asyncio.to_thread(self._trained_log.record_step, step, version, report.trained, dropped, report.records)
        if self._trained_log.failures and not self._reported_unrecorded:
            text = f"what step {report.step} did with its trajectories cannot be written: the monitor does not show it"
            self.events.emit("alert.raised", name="trained_log", text=text)
            self._reported_unrecorded = True

    def report_faults(self, report: StepReport) -> None:
        """Report the trajectories that the learner could not use, and the first of them as an alert."""
        for name, fault in report.faults.items():
            self.events.emit("trajectory.unusable", step=report.step, trajectory=name, why=fault)
        for name, fault in [*report.faults.items()][:1]:
            text = f"{len(report.faults)} trajectories of the batch were dropped as unusable: {name}: {fault}"
            self.events.emit("alert.raised", name="unusable_trajectories", text=text)

    async def write_step(
        self,
        step: int,
        report: StepReport,
        buffer: BufferStatistics,
        *,
        groups: int,
        wait_s: float,
        step_s: float,
    ) -> None:
        """Append the step's line of metrics, with the parity and the evaluation that were measured since the last."""
        parity, score = self.parity.take_result(), self.online_evaluation.take_score()
        sampled, judged = await self.sampled_tokens(), await self.judge_tokens()
        self._report_export_failures(buffer.export_failures)
        dropped_since = count_increase(self._dropped_tokens, buffer.dropped_tokens)
        facts = StepFacts(
            step=step,
            rewards=self._rewards,
            passed=self._passed,
            zero_variance_groups=self._zero_variance,
            groups=groups,
            trained=len(report.trained),
            dropped=Counter(reason.value for reason in report.dropped.values()),
            staleness_histogram=report.staleness_histogram,
            token_account=report.account,
            dropped_tokens=dropped_since,
            sampled_tokens=max(0, sampled - self._sampled),
            judge_tokens=None if judged is None else max(0, judged - (self._judged or 0)),
            wait_s=wait_s,
            step_s=step_s,
            pause_ms=self.weight_sync.pause_ms,
            parity=parity,
            evaluated_step=score.step if score is not None else None,
            evaluation_pass_at_1=score.score.pass_at_1 if score is not None else 0.0,
        )
        self._dropped_tokens, self._sampled, self._judged = buffer.dropped_tokens, sampled, judged
        self._rewards, self._passed, self._zero_variance = [], 0, 0
        self.events.emit("learner.step", **self.metrics.append_step(facts, report.metrics))
        self.parity.check_step_metrics(report.metrics)

    def _report_export_failures(self, count: int) -> None:
        if count > self._export_failures:
            text = f"{count} trajectories could not be exported: the run continues, but its steps cannot be replayed"
            self.events.emit("alert.raised", name="trajectory_export", text=text)
        self._export_failures = count
