"""The training loop: lease a batch, step, mark it, publish, checkpoint.

It waits for the buffer (a batch of closed groups) and for the learner, for nobody else.  Of a publication and of a
checkpoint it waits for a copy of the learner's state; they are written beside the next steps, one of each at a time,
and what is published is then pushed by the :class:`Pusher`.  An engine that does not say at once what it counted is
not waited for.  Where the loop ends, by an interrupt too, it waits for what is being written.
Exactly once: a batch is marked trained at its step in the journal before the next is leased, and only a checkpoint's
manifest makes that final.  When the learner dies, it is started again from the newest checkpoint, the journal is
rewound to it, and its weights get a new version.

While it waits for a batch it sees to it that parity is looked for (:mod:`launch.parity_checks`).  A run that begins out
of parity ends before its first step.

Where learner and engines share a device (:mod:`launch.turns`), whatever is asked of the learner begins its turn, which
waits for an evaluation that the engines are at, and it ends before the loop waits for a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from actors.buffer import Buffer
from actors.conductor import Conductor
from actors.remote import Remote, RemoteError
from actors.weights.folders import forget_before, version_folder
from launch.batch_fill import BatchFill
from launch.budget import Budget, Spending
from launch.checkpoints import Checkpoint, CheckpointStore, LedgerLine, require_no_older, require_sound
from launch.exams import Examining, NoExams
from launch.keeper import Begun, Keeper
from launch.learners import Learners
from launch.lineage import LineageLog
from launch.metrics import ByLength, MetricsLog, StepFacts, read_spending, since, told_dropped
from launch.nonfinite import NonfiniteLimit, keep_batch
from launch.parity_checks import ParityChecks
from launch.pusher import Pusher
from launch.steering.boundary import Boundary, Ending
from launch.structured import Beside
from launch.turns import Turns
from learner.messages import StepReport
from learner.rank import LearnerRank
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.groups import GroupOutcome
from protocol.journal import Lease
from protocol.journal.repair import FILE
from protocol.lanes import LaneLog
from protocol.logs import bound, get_log
from protocol.staleness import StalePolicy, may_step
from protocol.structured import task_group
from protocol.trained import TrainedLog
from protocol.weights import NO_VERSION, Lineage, Version, WeightManifest, make_version

T = TypeVar("T")
P = ParamSpec("P")

REFERENCE = "reference"
"""Folder of a run's frozen weights."""
_LEASE_WAIT_S = 5.0
_LAST_WRITES_S = 60.0
"""Of a run that is interrupted: longest wait for what is being written."""
_KEPT_VERSIONS = 4
_DEATHS_IN_A_ROW = 3
"""A learner that dies oftener without a step in between dies of its work."""

_log = get_log(__name__)


class _Publication(NamedTuple):
    """Weights that are copied, and not yet written."""

    version: Version
    step: int
    parent: Version
    learners: Learners


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    run_dir: Path
    attempt: int
    steps: int
    groups_per_step: int
    eta: int
    policy: StalePolicy
    publish_every: int
    checkpoint_every: int
    budget: Budget
    group_size: int
    nonfinite_limit: int
    keeps_reference: bool
    """Whether the learner's first weights are kept, as what a KL penalty is taken to."""


@dataclass(slots=True, kw_only=True)
class Training:
    settings: TrainingSettings
    learners: Learners
    buffer: Remote[Buffer]
    conductor: Remote[Conductor]
    pusher: Pusher
    turns: Turns
    checkpoints: CheckpointStore
    metrics: MetricsLog
    events: EventLog
    parity: ParityChecks
    boundary: Boundary
    """Where others have something done between two steps."""
    restart_learners: Callable[[], Awaitable[Learners]]
    engine_tokens: Callable[[], Awaitable[int]]
    """Tokens that the engines have sampled so far."""
    exams: Examining = field(default_factory=NoExams)
    """Evaluations beside the loop."""
    step: int = 0
    ended: Ending | None = None
    """Why training ended; None while it goes on."""
    version: Version = NO_VERSION
    lineage: Lineage = field(default_factory=Lineage)
    keeper: Keeper = field(init=False)
    _count: int = 0
    _seen: int = -1
    _rewards: list[float] = field(default_factory=list[float])
    _passed: int = 0
    _zero_variance: int = 0
    _sampled: int = 0
    _dropped_tokens: ByLength = field(default_factory=dict[str, dict[str, int]])
    """Of trajectories that were dropped, as far as the metrics have told of them."""
    _unexported: int = 0
    _told_unrecorded: bool = False
    _published: bool = False
    _begun: float = 0.0
    _sampled_before: int = 0
    """By the engines, when training began."""
    _spent_before: Spending = field(default_factory=Spending)
    """By earlier attempts."""
    _publishing: Beside = field(init=False)
    _saving: Beside = field(init=False)
    _versions: LineageLog = field(init=False)
    _records: TrainedLog = field(init=False)
    _lane: LaneLog = field(init=False)
    _fill: BatchFill = field(init=False)
    _nonfinite: NonfiniteLimit = field(init=False)

    def __post_init__(self) -> None:
        self._nonfinite = NonfiniteLimit(self.settings.nonfinite_limit)
        self._fill = self._new_fill(0)
        self._versions = LineageLog(self.settings.run_dir)
        self._records = TrainedLog(self.settings.run_dir)
        self._lane = LaneLog(self.settings.run_dir, "learner", "learner")
        self.keeper = Keeper(
            attempt=self.settings.attempt,
            store=self.checkpoints,
            buffer=self.buffer,
            events=self.events,
            learners=lambda: self.learners,
        )

    def _new_fill(self, lost: int) -> BatchFill:
        return BatchFill(self.settings.groups_per_step, self.settings.group_size, lost)

    async def persist(self, work: Callable[[], Awaitable[T]]) -> T:
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

    async def begin(self) -> WeightManifest:
        """Publish the learner's first weights and keep them as the checkpoint of step 0."""
        await asyncio.to_thread(self._forget_killed)
        await self._keep_reference()
        manifest = await self.publish()
        await self.keeper.complete(await self._begin_checkpoint())
        await self._rest()
        return manifest

    async def resume(self, checkpoint: Checkpoint) -> WeightManifest:
        """Continue from ``checkpoint``: its weights under a new version, the journal rewound to its step.  Raises
        UserError where the journal is older than the checkpoint."""
        await asyncio.to_thread(self._forget_killed)
        await self._learner(LearnerRank.load, str(checkpoint.learner))
        await self._keep_reference()
        self.step = checkpoint.manifest.step
        await self.exams.rolled_back(self.step)
        await asyncio.to_thread(self.checkpoints.rolled_back, self.step)
        self.parity.renew()
        self.keeper.resumed(self.step)
        self.version = Version(checkpoint.manifest.version)
        self.lineage = Lineage(self._versions.read().entries | checkpoint.lineage.entries)
        self._fill = self._new_fill(sum(len(line.dropped) for line in checkpoint.ledger()))
        self.pusher.stand.lost(self._fill.lost_groups)
        await self.buffer.call(Buffer.rewind, self.step)
        books = await self.buffer.call(Buffer.accounting)
        require_no_older(self.settings.run_dir / FILE, books, checkpoint.manifest)
        await self.buffer.call(Buffer.commit, self.step)  # who died may not have come to it
        self.metrics.rewind(self.step)
        await asyncio.to_thread(self._records.rewind, self.step)
        self._dropped_tokens = told_dropped(self.settings.run_dir)
        manifest = await self.publish()
        await self._rest()
        return manifest

    async def run(self) -> None:
        """Train until the last step or a stop condition; the last weights are kept, and offered to the engines."""
        self._begun, self._sampled = time.monotonic(), await self.engine_tokens()
        self._sampled_before, self._spent_before = self._sampled, read_spending(self.settings.run_dir)
        self.metrics.start()
        async with task_group() as group:
            self._publishing, self._saving = Beside(group), Beside(group)
            lane = group.create_task(self._lane.keep_telling())
            try:
                await self._until_over()
            finally:
                lane.cancel()
                self.boundary.close()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WRITES_S):
                        await self._publishing.settle()
                        await self._saving.settle()

    async def _until_over(self) -> None:
        deaths, lost, over, farthest = 0, None, False, self.step
        while not over:
            try:
                if lost is not None:
                    await self._recover(lost)
                lost, over = None, not await self._go_on()
                if self.step > farthest:  # steps that a death took back are no way out of what kills
                    farthest, deaths = self.step, 0
            except RemoteError as error:
                deaths += 1
                if not _is_learner(error) or deaths > _DEATHS_IN_A_ROW:
                    raise
                lost = error

    async def _go_on(self) -> bool:
        """Use the next batch; false when there is to be none, and the last weights are kept and on their way."""
        await self._hand_over()
        waiting, stood_s = time.monotonic(), self.boundary.stood_s
        if self.step < self.settings.steps:
            with self._lane.during("waiting"):
                lease = await self._lease()
            if lease is not None:
                with bound(step=self.step + 1):
                    _log.info("batch leased", groups=[group.group for group in lease.groups])
                    await self._use(lease, time.monotonic() - waiting - (self.boundary.stood_s - stood_s))
                return True
        self.ended = self.ended or Ending.STEPS
        if self.keeper.begun < self.step:
            await self._checkpoint_beside()
        if not self._published:
            await self._publish_beside()
        await self._hand_over()
        await self._publishing.join()
        await self._saving.join()
        return self.keeper.kept < self.step

    async def _learner(self, method: Callable[Concatenate[LearnerRank, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the learner, in its turn."""
        await self._turn()
        return await self.learners.call(method, *args, **kwargs)

    async def _turn(self) -> None:
        """Let it be the learner's."""
        if self.turns.shared and not self.turns.learning:
            await self.exams.idle()
        await self.turns.learner()

    async def _rest(self) -> None:
        """Let nothing of the learner be on a device that is not its own."""
        if self.turns.shared:
            await self.learners.call(LearnerRank.sleep)

    async def _hand_over(self) -> None:
        """End the learner's turn, if it has one: the engines go on with what it has published."""
        if self.turns.learning:
            await self._rest()
            await self._publishing.join()
            await self.turns.rollout()

    def _look_beside(self) -> None:
        """Raise what has failed beside the loop."""
        self._publishing.look()
        self._saving.look()

    async def _stop(self) -> str | None:
        """Why training is to end now."""
        if self.boundary.ending is Ending.ASKED:
            self.ended = Ending.ASKED
            return "it was asked for"
        budget, tokens, acked = self.settings.budget, 0, 0
        if budget.after_tokens:
            tokens = self._spent_before.tokens + await self.engine_tokens() - self._sampled_before
        if budget.after_trajectories:
            acked = (await self.buffer.call(Buffer.accounting)).acked
        spent = Spending(tokens, self._spent_before.seconds + time.monotonic() - self._begun)
        if (limit := budget.reached(self.step, acked, spent)) is not None:
            self.ended = Ending.BUDGET
        return limit

    async def _groups(self) -> int:
        """Groups of the next batch.  Of a run that is drained the last one may be smaller, and then there is none."""
        full = self._fill.groups
        if self.boundary.ending is not Ending.DRAINED or (await self.conductor.call(Conductor.statistics)).open_groups:
            return full
        return min(full, (await self.buffer.call(Buffer.wait_progress, -1, 0.0)).ready)

    async def _use(self, lease: Lease, wait_s: float) -> None:
        """Train on ``lease``, which is one step unless all of it is too old."""
        await self._compare()
        self.parity.stepping(self.step + 1)
        stepping = time.monotonic()
        with self._lane.during("training"):
            report = await self._learner(
                LearnerRank.step,
                self.step + 1,
                self.buffer.ref(Buffer.payload, lease).argument(),
                self.lineage,
                self.version,
            )
        kept = await self._kept_nonfinite(report, lease)
        await self.buffer.call(Buffer.mark_trained, self.step + 1, list(report.trained), dict(report.dropped))
        await self._keep_record(report)
        if not report.trained:
            for reason, episodes in Counter(report.dropped.values()).items():
                self.events.emit("batch.passed_over", groups=len(lease.groups), episodes=episodes, reason=reason.value)
            if kept is not None:
                self._nonfinite.nonfinite(kept)
            return
        self._nonfinite.finite()
        dropped = {name: reason.value for name, reason in report.dropped.items()}
        self.step += 1
        self._fill.stepped(len(dropped))
        self.pusher.stand.lost(self._fill.lost_groups)
        self.keeper.ledger.append(LedgerLine(self.step, self.version, tuple(report.trained), dropped))
        if self.step % self.settings.publish_every == 0:
            await self._publish_beside()
        else:
            self._advance()
        buffer = await self.buffer.call(Buffer.statistics)
        self._tell_unexported(buffer.export_failures)
        await self._record(report, lease, wait_s, time.monotonic() - stepping, buffer.dropped_tokens)
        self.parity.stepped(report.metrics)
        if self.step % self.settings.checkpoint_every == 0 or buffer.wants_checkpoint:
            await self._checkpoint_beside()
        self.pusher.stand.stepped(time.monotonic() - stepping)

    async def _kept_nonfinite(self, report: StepReport, lease: Lease) -> Path | None:
        """Where a batch was kept of which an update was not finite."""
        skipped = int(report.metrics.get("nonfinite_updates", 0))
        if not skipped:
            return None
        payload = await self.buffer.call(Buffer.payload, lease)
        folder = await asyncio.to_thread(keep_batch, self.settings.run_dir, report.step, lease.trajectories, payload)
        self.events.emit("learner.nonfinite", step=report.step, updates=skipped, path=str(folder))
        return folder

    def _tell_unexported(self, count: int) -> None:
        if count > self._unexported:
            text = f"{count} trajectories could not be exported: the run goes on, but its steps cannot be replayed"
            self.events.emit("advisory", about="export", text=text)
        self._unexported = count

    async def _keep_record(self, report: StepReport) -> None:
        """For people: what became of each trajectory and token of a batch."""
        dropped = {name: reason.value for name, reason in report.dropped.items()}
        step = report.step if report.trained else None
        await asyncio.to_thread(self._records.add, step, self.version, report.trained, dropped, report.records)
        if self._records.failures and not self._told_unrecorded:
            text = f"what step {report.step} made of its trajectories cannot be written: the monitor does not show it"
            self.events.emit("advisory", about="trained", text=text)
            self._told_unrecorded = True

    async def _lease(self) -> Lease | None:
        """The oldest full batch of closed groups; waits for it.  None when a stop condition comes first."""
        while (stop := await self._next_or_stop()) is None:
            self._look_beside()
            await self._probe()
            await self._follow(0.0)
            if not (groups := await self._groups()):
                self.ended, stop = Ending.DRAINED, "what was under way is trained"
                break
            lease = await self.buffer.call(Buffer.lease, groups)
            if lease is not None and await self._strands_nobody(lease):
                return lease
            await self._make_room()
            await self._follow(_LEASE_WAIT_S)
        text = f"training ends after step {self.step} of {self.settings.steps}: {stop}"
        self.events.emit("advisory", about="stop", text=text)
        return None

    async def _next_or_stop(self) -> str | None:
        """Do what was asked for between two steps; why training is to end, if it is."""
        await self.boundary.pass_by()
        await self._hand_over()
        return await self._stop()

    async def checkpoint_now(self) -> int:
        """Between two steps: begin a checkpoint of the last one, unless there is one; which step that is."""
        if self.keeper.begun < self.step:
            await self._checkpoint_beside()
        return self.step

    async def until_kept(self, step: int) -> None:
        """Beside the loop: wait for the checkpoint that was begun of ``step``.  Raises UserError."""
        await self._saving.settle()
        if self.keeper.kept < step:
            raise UserError(f"the checkpoint of step {step} could not be written: the event checkpoint.failed says why")

    async def _probe(self) -> None:
        """Look for parity where that is due, while nothing else is to be done."""
        await self.parity.sample(self.step, self.version, self.pusher.engines)
        if not self.turns.shared:
            await self._compare()

    async def _compare(self) -> None:
        """Raises UserError where a run begins out of parity."""
        await self.parity.compare(
            self.step, self.version, lambda sequences: self._learner(LearnerRank.logprobs, sequences)
        )

    async def _make_room(self) -> None:
        """Where the journal's budget keeps groups from being opened, let go of what was trained since the last
        checkpoint, or the batch that the next one waits for might never be full."""
        if self.keeper.kept < self.step and (await self.conductor.call(Conductor.statistics)).budget_full:
            if self.keeper.begun < self.step:
                await self._checkpoint_beside()
                await self._hand_over()
            await self._saving.join()

    async def _strands_nobody(self, lease: Lease) -> bool:
        """Under the policy ``wait``: whether no running episode would be stranded by a step on ``lease``."""
        if self.settings.policy is not StalePolicy.WAIT:
            return True
        groups = [group.group for group in lease.groups]
        oldest = await self.conductor.call(Conductor.binding_step, self.step, groups)
        return may_step(self.step, oldest, self.settings.eta)

    async def _follow(self, timeout_s: float) -> None:
        """Take in what has closed, for the metrics of the next step."""
        progress = await self.buffer.call(Buffer.wait_progress, self._seen, timeout_s)
        self._seen = progress.seq
        for closing in progress.closed:
            self._rewards += closing.rewards.values()
            self._passed += len(closing.passed)
            self._zero_variance += closing.outcome is GroupOutcome.ZERO_VARIANCE

    async def publish(self) -> WeightManifest:
        """Write the current weights under a new version; older ones that nothing uses any more are removed."""
        return await self._end_publish(await self._begin_publish())

    async def _publish_beside(self) -> None:
        """:meth:`publish` beside the next steps, once the publication before is written, and offer what it gives."""
        await self._publishing.join()
        copied = await self._begin_publish()

        async def write_and_offer() -> None:
            await self.offer(await self._end_publish(copied))

        await self._publishing.start(write_and_offer)

    async def offer(self, manifest: WeightManifest) -> None:
        """Let the engines have what was published, and an evaluation, if one of it is due."""
        await self.pusher.offer(manifest)
        await self.exams.published(manifest)

    async def _begin_publish(self) -> _Publication:
        """Copy the current weights."""
        parent, version = self.version, self._advance()
        await self._learner(LearnerRank.begin_publish)
        self._published = True
        return _Publication(version, self.step, parent, self.learners)

    async def _end_publish(self, copied: _Publication) -> WeightManifest:
        version, step, parent, learners = copied
        folder = version_folder(self.settings.run_dir / "weights", version)
        with self._lane.during("publishing"):
            manifest = await learners.beside(LearnerRank.end_publish, version, step, parent, str(folder))
        assert manifest is not None  # noqa: S101  # rank 0 writes
        self.events.emit("weights.published", version=version, step=step, sha256=manifest.sha256)
        await asyncio.to_thread(self._forget_weights)
        return manifest

    def _advance(self) -> Version:
        """A new version for the weights of this step; nobody has them yet."""
        version = make_version(self.settings.attempt, self._count)
        self._count += 1
        self.lineage.add(version, self.step, self.version)
        self._versions.add(self.lineage.entries[version])
        self.version, self._published = version, False
        return version

    async def _keep_reference(self) -> None:
        """Freeze the weights with which reinforcement learning began; a learner that is started again reads them."""
        folder = self.settings.run_dir / REFERENCE
        if self.settings.keeps_reference:
            await self._learner(LearnerRank.keep_reference, str(folder), not folder.exists())

    def _forget_weights(self) -> None:
        """A version's files live until every engine that has a server has confirmed a later one."""
        if (served := self.pusher.served) is not None:
            forget_before(self.settings.run_dir / "weights", served.version, keep=_KEPT_VERSIONS)

    def _forget_killed(self) -> None:
        """Remove weights that a learner was killed over."""
        for killed in (self.settings.run_dir / "weights").glob(".v*"):
            shutil.rmtree(killed, ignore_errors=True)

    async def _begin_checkpoint(self) -> Begun:
        await self._turn()
        return await self.keeper.begin(self.step, self.version, self.lineage)

    async def export(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Write the weights of ``checkpoint`` as a Hugging Face folder, adapters merged into them, once training has
        ended: the learner has them afterwards.  Raises UserError, InfraError and OSError."""
        manifest = checkpoint.manifest
        await asyncio.to_thread(require_sound, checkpoint)
        await self._learner(LearnerRank.load, str(checkpoint.learner))
        version = Version(manifest.version)
        await self._learner(LearnerRank.publish, version, manifest.step, NO_VERSION, str(folder))
        await self._rest()

    async def _checkpoint_beside(self) -> None:
        """Keep the current state, written beside the next steps once the checkpoint before is."""
        await self._saving.join()
        begun = await self._begin_checkpoint()

        async def complete() -> None:
            with self._lane.during("saving"):
                await self.keeper.complete(begun)

        await self._saving.start(complete)

    async def _recover(self, error: RemoteError) -> None:
        """The learner died: start it again from the newest checkpoint, which may be the one that was being written."""
        self.events.emit("process.died", what=error.actor, why=error.why)
        await self._turn()
        self.learners = await self.restart_learners()
        await self._publishing.forget()
        await self._saving.forget()
        checkpoint = await asyncio.to_thread(self.checkpoints.newest_sound, self._tell_torn)
        if checkpoint is None:
            raise error
        await self.offer(await self.resume(checkpoint))
        self.events.emit("learner.resumed", step=self.step)

    def _tell_torn(self, aside: Path, why: str) -> None:
        self.events.emit("checkpoint.torn", path=str(aside), why=why)

    async def _record(
        self, report: StepReport, lease: Lease, wait_s: float, step_s: float, dropped_tokens: ByLength
    ) -> None:
        sampled, before = await self.engine_tokens(), self._sampled
        dropped_since = since(self._dropped_tokens, dropped_tokens)
        self._dropped_tokens, self._sampled = dropped_tokens, sampled
        facts = StepFacts(
            step=self.step,
            rewards=self._rewards,
            passed=self._passed,
            zero_variance_groups=self._zero_variance,
            groups=len(lease.groups),
            trained=len(report.trained),
            dropped=Counter(reason.value for reason in report.dropped.values()),
            ages=report.ages,
            tokens=report.account,
            dropped_tokens=dropped_since,
            sampled_tokens=max(0, sampled - before),
            wait_s=wait_s,
            step_s=step_s,
            pause_ms=self.pusher.pause_ms,
            probe=self.parity.found(),
            exam=self.exams.found(),
        )
        self._rewards, self._passed, self._zero_variance = [], 0, 0
        self.events.emit("learner.step", **self.metrics.add(facts, report.metrics))


def _is_learner(error: RemoteError) -> bool:
    return error.actor.rpartition("/")[2].startswith("learner-")
