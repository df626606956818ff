"""The training loop: lease a batch, step, mark it, publish, checkpoint.

It waits for the buffer (a batch of closed groups) and for the learner, for nobody else.  Of a publication and of a
checkpoint it waits for a copy of the learner's state; they are written beside the next steps, one of each at a time,
and what is published is then pushed by the weight sync manager.  An engine that does not say at once what it counted is
not waited for.  Where the loop ends, by an interrupt too, it waits for what is being written.
Exactly once: a batch is marked trained at its step in the journal before the next is leased, and only a checkpoint's
manifest makes that final.  When the learner dies, it is started again from the newest checkpoint, the journal is
rewound to it, and its weights get a new version.

While it waits for a batch it lets the parity checker take its probe (:mod:`launch.training.parity_checker`).  A run
that begins out of parity ends before its first step.

Where learner and engines share a device (:mod:`launch.weight_sync.colocation`), each call to the learner first switches
the device to it, after any evaluation that the engines still run; the loop switches back before it waits for a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import RemoteError
from actors.scheduler.rollout_scheduler import RolloutScheduler
from launch.actor_group.learner_group import LearnerGroup
from launch.checkpoints.manager import CheckpointManager, PendingCheckpoint
from launch.checkpoints.store import Checkpoint, CheckpointStore, LedgerLine, require_intact, require_journal_covers
from launch.control.step_hooks import StepHooks, TrainingEnding
from launch.evaluation.online.online_evaluator import EvaluationHooks, NoOnlineEvaluation
from launch.processes.background_tasks import BackgroundSlot
from launch.run_records.metrics_log import MetricsLog, read_budget_usage
from launch.run_records.step_facts import BudgetUsage
from launch.training.batch_fill import BatchFill
from launch.training.budget import first_limit_reached
from launch.training.nonfinite_batches import NonfiniteLimit, save_nonfinite_batch
from launch.training.parity_checker import ParityChecker
from launch.training.settings import StopSettings
from launch.training.step_recorder import StepRecorder
from launch.training.weight_publisher import VersionPublisher
from launch.weight_sync.colocation import ColocationManager
from launch.weight_sync.manager import WeightSyncManager
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.activity import ActivityLog
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.journal import BatchLease
from protocol.journal.repair import JOURNAL_FILE
from protocol.processes.task_groups import task_group
from protocol.run_directory.process_log import bind_log_ids, get_logger
from protocol.staleness import StaleTokenPolicy, may_take_step
from protocol.weights import NO_VERSION, Lineage, WeightManifest, WeightVersion

T = TypeVar("T")
P = ParamSpec("P")

REFERENCE_FOLDER = "reference"
"""Folder of a run's frozen weights."""
_LEASE_WAIT_S = 5.0
_LAST_WRITES_S = 60.0
"""Of a run that is interrupted: longest wait for what is being written."""
_DEATHS_IN_A_ROW = 3
"""A learner that dies oftener without a step in between dies of its work."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    run_dir: Path
    attempt: int
    steps: int
    groups_per_step: int
    max_staleness: int
    stale_policy: StaleTokenPolicy
    publish_every: int
    checkpoint_every: int
    stop: StopSettings
    group_size: int
    nonfinite_limit: int
    keeps_reference: bool
    """Whether the learner's first weights are kept, as what a KL penalty is taken to."""


@dataclass(slots=True, kw_only=True)
class TrainingLoop:
    settings: TrainingSettings
    learners: LearnerGroup
    buffer: Remote[TrajectoryBuffer]
    scheduler: Remote[RolloutScheduler]
    weight_sync: WeightSyncManager
    colocation: ColocationManager
    checkpoints: CheckpointStore
    metrics: MetricsLog
    events: EventLog
    parity: ParityChecker
    step_hooks: StepHooks
    """Where others have something done between two steps."""
    restart_learners: Callable[[], Awaitable[LearnerGroup]]
    sampled_tokens: Callable[[], Awaitable[int]]
    """Tokens that the engines have sampled so far."""
    online_evaluation: EvaluationHooks = field(default_factory=NoOnlineEvaluation)
    """Evaluations beside the loop."""
    step: int = 0
    ending: TrainingEnding | None = None
    """Why training ended; None while it goes on."""
    publisher: VersionPublisher = field(init=False)
    recorder: StepRecorder = field(init=False)
    checkpoint_manager: CheckpointManager = field(init=False)
    _begun: float = 0.0
    _sampled_before: int = 0
    """By the engines, when training began."""
    _spent_before: BudgetUsage = field(default_factory=BudgetUsage)
    """By earlier attempts."""
    _publishing: BackgroundSlot = field(init=False)
    _saving: BackgroundSlot = field(init=False)
    _activity: ActivityLog = field(init=False)
    _batch_fill: BatchFill = field(init=False)
    _nonfinite: NonfiniteLimit = field(init=False)

    def __post_init__(self) -> None:
        self._nonfinite = NonfiniteLimit(self.settings.nonfinite_limit)
        self._batch_fill = self._new_fill(0)
        self._activity = ActivityLog(self.settings.run_dir, "learner", "learner")
        self.publisher = VersionPublisher(
            run_dir=self.settings.run_dir,
            attempt=self.settings.attempt,
            weight_sync=self.weight_sync,
            events=self.events,
            activity=self._activity,
            copy_weights=self._copy_weights,
        )
        self.recorder = StepRecorder(
            run_dir=self.settings.run_dir,
            metrics=self.metrics,
            events=self.events,
            buffer=self.buffer,
            sampled_tokens=self.sampled_tokens,
        )
        self.checkpoint_manager = CheckpointManager(
            attempt=self.settings.attempt,
            store=self.checkpoints,
            buffer=self.buffer,
            events=self.events,
            learners=lambda: self.learners,
        )

    @property
    def version(self) -> WeightVersion:
        """Version of the learner's current weights."""
        return self.publisher.version

    @property
    def lineage(self) -> Lineage:
        return self.publisher.lineage

    def _new_fill(self, lost: int) -> BatchFill:
        return BatchFill(self.settings.groups_per_step, self.settings.group_size, lost)

    async def retry_with_new_learners(self, work: Callable[[], Awaitable[T]]) -> T:
        """What ``work`` makes with the learners before there is a step to lose: all of it again with new ones when one
        dies."""
        deaths, lost = 0, False
        while True:
            try:
                if lost:
                    self.learners = await self.restart_learners()
                lost = False
                return await work()
            except RemoteError as error:
                deaths += 1
                if not _is_learner(error) or deaths > _DEATHS_IN_A_ROW:
                    raise
                self.events.emit("process.died", what=error.actor, why=error.why)
                lost = True

    async def publish_initial_weights(self) -> WeightManifest:
        """Publish the learner's first weights and keep them as the checkpoint of step 0."""
        await self.publisher.delete_partial()
        await self._keep_reference()
        manifest = await self.publish()
        await self.checkpoint_manager.complete(await self._begin_checkpoint())
        await self._offload_learner()
        return manifest

    async def resume_from(self, checkpoint: Checkpoint) -> WeightManifest:
        """Continue from ``checkpoint``: its weights under a new version, the journal rewound to its step.  Raises
        UserError where the journal is older than the checkpoint."""
        await self.publisher.delete_partial()
        await self._call_learner(LearnerRank.load, str(checkpoint.learner))
        await self._keep_reference()
        self.step = checkpoint.manifest.step
        await self.online_evaluation.on_rollback(self.step)
        await asyncio.to_thread(self.checkpoints.drop_scores_after, self.step)
        self.parity.reset()
        self.checkpoint_manager.resume_from(self.step)
        self.publisher.resume_from(WeightVersion(checkpoint.manifest.version), checkpoint.lineage)
        self._batch_fill = self._new_fill(sum(len(line.dropped) for line in checkpoint.ledger()))
        self.weight_sync.run_state.set_dropped_groups(self._batch_fill.dropped_groups)
        await self.buffer.call(TrajectoryBuffer.rewind_to_step, self.step)
        books = await self.buffer.call(TrajectoryBuffer.accounting)
        require_journal_covers(self.settings.run_dir / JOURNAL_FILE, books, checkpoint.manifest)
        await self.buffer.call(TrajectoryBuffer.commit_step, self.step)  # who died may not have come to it
        await self.recorder.rewind(self.step)
        manifest = await self.publish()
        await self._offload_learner()
        return manifest

    async def run(self) -> None:
        """Train until the last step or a stop condition; the last weights are kept, and offered to the engines."""
        self._begun, self._sampled_before = time.monotonic(), await self.sampled_tokens()
        self._spent_before = read_budget_usage(self.settings.run_dir)
        self.recorder.start(self._sampled_before)
        async with task_group() as group:
            self._publishing, self._saving = BackgroundSlot(group), BackgroundSlot(group)
            lane = group.create_task(self._activity.write_periodically())
            try:
                await self._run_with_recovery()
            finally:
                lane.cancel()
                self.step_hooks.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WRITES_S):
                        await self._publishing.wait_done()
                        await self._saving.wait_done()

    async def _run_with_recovery(self) -> None:
        deaths, lost, over, farthest = 0, None, False, self.step
        while not over:
            try:
                if lost is not None:
                    await self._recover(lost)
                lost, over = None, not await self._run_step()
                if self.step > farthest:  # steps that a death took back are no way out of what kills
                    farthest, deaths = self.step, 0
            except RemoteError as error:
                deaths += 1
                if not _is_learner(error) or deaths > _DEATHS_IN_A_ROW:
                    raise
                lost = error

    async def _run_step(self) -> bool:
        """Use the next batch; false when there is to be none, and the last weights are kept and on their way."""
        await self._release_device()
        waiting, stood_s = time.monotonic(), self.step_hooks.paused_s
        if self.step < self.settings.steps:
            with self._activity.track("waiting"):
                lease = await self._lease_batch()
            if lease is not None:
                with bind_log_ids(step=self.step + 1):
                    _log.info("batch leased", groups=[group.group for group in lease.groups])
                    await self._train_batch(lease, time.monotonic() - waiting - (self.step_hooks.paused_s - stood_s))
                return True
        self.ending = self.ending or TrainingEnding.STEPS
        if self.checkpoint_manager.newest_begun_step < self.step:
            await self._checkpoint_in_background()
        if not self.publisher.is_published:
            await self._publish_in_background()
        await self._release_device()
        await self._publishing.join()
        await self._saving.join()
        return self.checkpoint_manager.newest_step < self.step

    async def _call_learner(
        self, method: Callable[Concatenate[LearnerRank, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the learner, in its turn."""
        await self._acquire_device()
        return await self.learners.call(method, *args, **kwargs)

    async def _acquire_device(self) -> None:
        """Let it be the learner's."""
        if self.colocation.colocated and not self.colocation.learner_active:
            await self.online_evaluation.wait_idle()
        await self.colocation.switch_to_learner()

    async def _offload_learner(self) -> None:
        """Let nothing of the learner be on a device that is not its own."""
        if self.colocation.colocated:
            await self.learners.call(LearnerRank.offload_to_host)

    async def _release_device(self) -> None:
        """End the learner's turn, if it has one: the engines go on with what it has published."""
        if self.colocation.learner_active:
            await self._offload_learner()
            await self._publishing.join()
            await self.colocation.switch_to_rollout()

    def _raise_background_errors(self) -> None:
        """Raise what has failed beside the loop."""
        self._publishing.raise_if_failed()
        self._saving.raise_if_failed()

    async def _stop_reason(self) -> str | None:
        """Why training is to end now."""
        if self.step_hooks.ending is TrainingEnding.STOPPED_BY_REQUEST:
            self.ending = TrainingEnding.STOPPED_BY_REQUEST
            return "it was asked for"
        stop, tokens, acknowledged = self.settings.stop, 0, 0
        if stop.after_tokens:
            tokens = self._spent_before.tokens + await self.sampled_tokens() - self._sampled_before
        if stop.after_trajectories:
            acknowledged = (await self.buffer.call(TrajectoryBuffer.accounting)).acknowledged
        spent = BudgetUsage(tokens, self._spent_before.seconds + time.monotonic() - self._begun)
        if (limit := first_limit_reached(stop, self.step, acknowledged, spent)) is not None:
            self.ending = TrainingEnding.BUDGET
        return limit

    async def _groups_to_lease(self) -> int:
        """Groups of the next batch.  Of a run that is drained the last one may be smaller, and then there is none."""
        full = self._batch_fill.groups_to_lease
        if (
            self.step_hooks.ending is not TrainingEnding.DRAINED
            or (await self.scheduler.call(RolloutScheduler.statistics)).open_groups
        ):
            return full
        return min(full, (await self.buffer.call(TrajectoryBuffer.wait_progress, -1, 0.0)).ready)

    async def _train_batch(self, lease: BatchLease, wait_s: float) -> None:
        """Train on ``lease``, which is one step unless all of it is too old."""
        await self._compare_parity_probe()
        self.parity.before_step(self.step + 1)
        stepping = time.monotonic()
        with self._activity.track("training"):
            report = await self._call_learner(
                LearnerRank.step,
                self.step + 1,
                self.buffer.submit(TrajectoryBuffer.read_payload, lease).argument(),
                self.lineage,
                self.version,
            )
        kept = await self._save_if_nonfinite(report, lease)
        await self.buffer.call(TrajectoryBuffer.mark_trained, self.step + 1, list(report.trained), dict(report.dropped))
        await self.recorder.write_trained_log(report, self.version)
        if not report.trained:
            for reason, episodes in Counter(report.dropped.values()).items():
                self.events.emit("batch.skipped", groups=len(lease.groups), episodes=episodes, reason=reason.value)
            if kept is not None:
                self._nonfinite.record_nonfinite(kept)
            return
        self._nonfinite.record_finite()
        dropped = {name: reason.value for name, reason in report.dropped.items()}
        self.step += 1
        self._batch_fill.record_step(len(dropped))
        self.weight_sync.run_state.set_dropped_groups(self._batch_fill.dropped_groups)
        self.checkpoint_manager.ledger.append(LedgerLine(self.step, self.version, tuple(report.trained), dropped))
        if self.step % self.settings.publish_every == 0:
            await self._publish_in_background()
        else:
            self.publisher.new_version(self.step)
        buffer = await self.buffer.call(TrajectoryBuffer.statistics)
        await self.recorder.write_step(
            self.step,
            report,
            buffer,
            groups=len(lease.groups),
            wait_s=wait_s,
            step_s=time.monotonic() - stepping,
            pause_ms=self.weight_sync.pause_ms,
            parity=self.parity.take_result(),
            score=self.online_evaluation.take_score(),
        )
        self.parity.check_step_metrics(report.metrics)
        if self.step % self.settings.checkpoint_every == 0 or buffer.wants_checkpoint:
            await self._checkpoint_in_background()
        self.weight_sync.run_state.record_step_time(time.monotonic() - stepping)

    async def _save_if_nonfinite(self, report: StepReport, lease: BatchLease) -> Path | None:
        """Where a batch was kept of which an update was not finite."""
        skipped = int(report.metrics.get("nonfinite_updates", 0))
        if not skipped:
            return None
        payload = await self.buffer.call(TrajectoryBuffer.read_payload, lease)
        folder = await asyncio.to_thread(
            save_nonfinite_batch, self.settings.run_dir, report.step, lease.trajectory_ids, payload
        )
        self.events.emit("learner.nonfinite", step=report.step, updates=skipped, path=str(folder))
        return folder

    async def _lease_batch(self) -> BatchLease | None:
        """The oldest full batch of closed groups; waits for it.  None when a stop condition comes first."""
        while (stop := await self._run_hooks_or_stop()) is None:
            self._raise_background_errors()
            await self._sample_parity_probe()
            await self.recorder.collect_closed_groups(0.0)
            if not (groups := await self._groups_to_lease()):
                self.ending, stop = TrainingEnding.DRAINED, "what was under way is trained"
                break
            lease = await self.buffer.call(TrajectoryBuffer.lease_batch, groups)
            if lease is not None and await self._strands_no_episode(lease):
                return lease
            await self._free_journal_space()
            await self.recorder.collect_closed_groups(_LEASE_WAIT_S)
        text = f"training ends after step {self.step} of {self.settings.steps}: {stop}"
        self.events.emit("alert.raised", name="stop", text=text)
        return None

    async def _run_hooks_or_stop(self) -> str | None:
        """Do what was asked for between two steps; why training is to end, if it is."""
        await self.step_hooks.run_pending()
        await self._release_device()
        return await self._stop_reason()

    async def checkpoint_now(self) -> int:
        """Between two steps: begin a checkpoint of the last one, unless there is one; which step that is."""
        if self.checkpoint_manager.newest_begun_step < self.step:
            await self._checkpoint_in_background()
        return self.step

    async def wait_checkpoint(self, step: int) -> None:
        """Beside the loop: wait for the checkpoint that was begun of ``step``.  Raises UserError."""
        await self._saving.wait_done()
        if self.checkpoint_manager.newest_step < step:
            raise UserError(f"the checkpoint of step {step} could not be written: the event checkpoint.failed says why")

    async def _sample_parity_probe(self) -> None:
        """Look for parity where that is due, while nothing else is to be done."""
        await self.parity.sample_probe(self.step, self.version, self.weight_sync.engines)
        if not self.colocation.colocated:
            await self._compare_parity_probe()

    async def _compare_parity_probe(self) -> None:
        """Raises UserError where a run begins out of parity."""
        await self.parity.compare_probe(
            self.step, self.version, lambda sequences: self._call_learner(LearnerRank.logprobs, sequences)
        )

    async def _free_journal_space(self) -> None:
        """Where the journal's budget keeps groups from being opened, let go of what was trained since the last
        checkpoint, or the batch that the next one waits for might never be full."""
        if (
            self.checkpoint_manager.newest_step < self.step
            and (await self.scheduler.call(RolloutScheduler.statistics)).budget_full
        ):
            if self.checkpoint_manager.newest_begun_step < self.step:
                await self._checkpoint_in_background()
                await self._release_device()
            await self._saving.join()

    async def _strands_no_episode(self, lease: BatchLease) -> bool:
        """Under the policy ``wait``: whether no running episode would be stranded by a step on ``lease``."""
        if self.settings.stale_policy is not StaleTokenPolicy.WAIT:
            return True
        groups = [group.group for group in lease.groups]
        oldest = await self.scheduler.call(RolloutScheduler.binding_step, self.step, groups)
        return may_take_step(self.step, oldest, self.settings.max_staleness)

    async def publish(self) -> WeightManifest:
        """Write the current weights under a new version; older ones that nothing uses any more are removed."""
        return await self.publisher.end(await self.publisher.begin(self.step))

    async def _publish_in_background(self) -> None:
        """:meth:`publish` beside the next steps, once the publication before is written, and offer what it gives."""
        await self._publishing.join()
        copied = await self.publisher.begin(self.step)

        async def write_and_offer() -> None:
            await self.announce_weights(await self.publisher.end(copied))

        await self._publishing.start(write_and_offer)

    async def announce_weights(self, manifest: WeightManifest) -> None:
        """Let the engines have what was published, and an evaluation, if one of it is due."""
        await self.weight_sync.push_weights(manifest)
        await self.online_evaluation.on_published(manifest)

    async def _copy_weights(self) -> LearnerGroup:
        await self._call_learner(LearnerRank.begin_publish)
        return self.learners

    async def _keep_reference(self) -> None:
        """Freeze the weights with which reinforcement learning began; a learner that is started again reads them."""
        folder = self.settings.run_dir / REFERENCE_FOLDER
        if self.settings.keeps_reference:
            await self._call_learner(LearnerRank.freeze_reference, str(folder), not folder.exists())

    async def _begin_checkpoint(self) -> PendingCheckpoint:
        await self._acquire_device()
        return await self.checkpoint_manager.begin(self.step, self.version, self.lineage)

    async def export_checkpoint(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Write the weights of ``checkpoint`` as a Hugging Face folder, adapters merged into them, once training has
        ended: the learner has them afterwards.  Raises UserError, InfraError and OSError."""
        manifest = checkpoint.manifest
        await asyncio.to_thread(require_intact, checkpoint)
        await self._call_learner(LearnerRank.load, str(checkpoint.learner))
        version = WeightVersion(manifest.version)
        await self._call_learner(LearnerRank.publish, version, manifest.step, NO_VERSION, str(folder))
        await self._offload_learner()

    async def _checkpoint_in_background(self) -> None:
        """Keep the current state, written beside the next steps once the checkpoint before is."""
        await self._saving.join()
        begun = await self._begin_checkpoint()

        async def complete() -> None:
            with self._activity.track("saving"):
                await self.checkpoint_manager.complete(begun)

        await self._saving.start(complete)

    async def _recover(self, error: RemoteError) -> None:
        """The learner died: start it again from the newest checkpoint, which may be the one that was being written."""
        self.events.emit("process.died", what=error.actor, why=error.why)
        await self._acquire_device()
        self.learners = await self.restart_learners()
        await self._publishing.discard_result()
        await self._saving.discard_result()
        checkpoint = await asyncio.to_thread(self.checkpoints.newest_intact, self._report_torn_checkpoint)
        if checkpoint is None:
            raise error
        await self.announce_weights(await self.resume_from(checkpoint))
        self.events.emit("learner.restarted", step=self.step)

    def _report_torn_checkpoint(self, aside: Path, why: str) -> None:
        self.events.emit("checkpoint.damaged", path=str(aside), why=why)


def _is_learner(error: RemoteError) -> bool:
    return error.actor.rpartition("/")[2].startswith("learner-")
