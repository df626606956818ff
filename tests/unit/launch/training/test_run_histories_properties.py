"""Any history of a run: groups, requests, steps, pushes, checkpoints, deaths.  If these fail, a token is trained that
is older than the bound, a task is skipped, or all processes are alive and the run never comes to its last step.

The rules are the real ones (scheduler core, journal, batches, staleness, lineage), called in the order in which
scheduler and training loop call them; the model beside them is a few dicts.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.buffer.group_progress import read_group_progress
from actors.buffer.task_records import TaskRecord, record_outcome
from actors.scheduler.core import SchedulerCore
from actors.scheduler.curriculum import TaskOrder
from actors.scheduler.settings import FailedRequestOutcome, SchedulerRunState, SchedulerSettings, SchedulerSpec
from actors.scheduler.task_sampler import closings_seen_by
from launch.bench.chaos.trajectory_audit import count_sampler_skips
from launch.training.batch_fill import BatchFill
from protocol import codec
from protocol.groups import GroupOutcome
from protocol.journal import AppendOutcome, BudgetFullError, ClosedGroup, Journal, JournalSettings, TrajectoryArrival
from protocol.staleness import AdmissionLimit, AdmissionMode, StaleTokenPolicy, apply_stale_token_policy, may_take_step
from protocol.trajectory import DropReason, InfraFailure, RolloutRequest, Segment
from protocol.weights import NO_VERSION, Lineage, WeightVersion, make_version
from tests.support.runs.trajectories import RUN, make_trajectory

SIZE = 3
GROUPS_PER_STEP = 2
STEPS = 8
LARGEST = 1500
BUDGET = 2 * GROUPS_PER_STEP * SIZE * LARGEST
"""The least that the configuration allows: two batches."""
TASKS, SEED = ("a", "b", "c", "d", "e"), 3
MANY = 100
_MOST_TOKENS, _MOST_STRAYS = 20, 6


@dataclass(eq=False)
class ModelEpisode:
    """A worker's, and the weights that have sampled for it so far."""

    request: RolloutRequest
    versions: list[int]


@dataclass
class RunModel:
    """The reference model, independent of the code under test."""

    step_of: dict[int, int] = field(default_factory=dict)
    parent_of: dict[int, int] = field(default_factory=dict)
    used: dict[int, list[str]] = field(default_factory=dict)
    """Step → trajectories that it trained or dropped, in this lineage."""
    passed_over: set[str] = field(default_factory=set)
    """Dropped where no step was taken."""
    lost: dict[int, int] = field(default_factory=dict)
    """Step → how many trajectories it dropped beside those that it trained."""

    def line(self, version: int) -> list[int]:
        found = []
        while version >= 0:
            found.append(version)
            version = self.parent_of[version]
        return found

    def staleness(self, sampled: int, using: int) -> int:
        mine = self.line(using)
        common = next(version for version in self.line(sampled) if version in mine)
        return self.step_of[sampled] + self.step_of[using] - 2 * self.step_of[common]


def history_segment(versions: list[int]) -> Segment:
    """One prompt token, then a sampled token of each of ``versions``."""
    tokens = np.arange(len(versions) + 1, dtype=np.int32)
    mask = np.array([0, *[1] * len(versions)], np.uint8)
    return Segment(tokens, mask, (mask * -0.5).astype(np.float32), np.array([-1, *versions], np.int32))


def records(closings: list[ClosedGroup], upto: int) -> dict[str, TaskRecord]:
    found: dict[str, TaskRecord] = {}
    for closing in closings[:upto]:
        record_outcome(found, closing)
    return found


class RunHistoryMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(StaleTokenPolicy),
        mode=st.sampled_from(AdmissionMode),
        max_staleness=st.integers(1, 3),
        replacements=st.integers(0, 2),
    )
    def begin(self, policy: StaleTokenPolicy, mode: AdmissionMode, max_staleness: int, replacements: int) -> None:
        self.policy, self.max_staleness = policy, max_staleness
        self.settings = SchedulerSpec(
            run_id=RUN,
            run_dir=Path(),
            node="node-0",
            tasks=TASKS,
            settings=SchedulerSettings(
                groups_per_step=GROUPS_PER_STEP, group_size=SIZE, replacement_limit=replacements
            ),
            admission=AdmissionLimit(mode, GROUPS_PER_STEP, max_staleness),
            total_steps=STEPS,
            request_deadline_s=1e9,
            seed=SEED,
            order=TaskOrder.SHUFFLED,
            tuning=SchedulerSettings().tuning(publish_every=1),
        )
        self.folder = tempfile.TemporaryDirectory()
        self.open_journal()
        self.lineage, self.model = Lineage(), RunModel()
        self.start_number = self.count = 0
        self.step = self.manifest = 0
        self.took_back = False
        """Whether a death has given back steps: their groups wait again before all that was opened since, and may have
        grown old by the time that they are trained."""
        self.using = self.published = self.kept = self.add_version(0, NO_VERSION)
        self.running: list[ModelEpisode] = []
        self.strays: list[ModelEpisode] = []
        """Their requests are somebody else's by now, or given up; they may end all the same."""
        self.reported: set[tuple[int, int]] = set()
        """(group, sample) of what the scheduler knows to have arrived."""
        self.fill = BatchFill(GROUPS_PER_STEP, SIZE)
        self.run_state = SchedulerRunState(training=True)
        self.start_scheduler()

    def open_journal(self) -> None:
        settings = JournalSettings(run_id=RUN, max_trajectory_bytes=LARGEST, budget_bytes=BUDGET, dynamic_sampling=True)
        self.journal = Journal(Path(self.folder.name) / "b" / "journal.sqlite", settings, lambda _: 1 << 40)

    def start_scheduler(self) -> None:
        """Restore the scheduler from the journal, as :func:`actors.scheduler.journal_restore.restore_from_journal`
        does."""
        state, closings = self.journal.read_sampler_state(), self.journal.list_closed_since(0)
        at_epoch, at_state = closings_seen_by(state)
        progress = read_group_progress(self.journal, len(closings))
        self.core, self.seen = SchedulerCore(self.settings, lambda kind, **fields: None), progress.seq
        known = records(closings, at_epoch), records(closings, at_state)
        self.core.restore(state, known, progress, closings[at_state:])
        self.core.reopen_groups(self.journal.list_open_groups())
        self.core.set_run_state(self.run_state)

    def add_version(self, step: int, parent: int) -> WeightVersion:
        version = make_version(self.start_number, self.count)
        self.count += 1
        self.lineage.add(version, step, WeightVersion(parent))
        self.model.step_of[version], self.model.parent_of[version] = step, parent
        return version

    def set_run_state(self, **changes: int) -> None:
        self.run_state = replace(self.run_state, **changes)
        self.core.set_run_state(self.run_state)

    def follow(self) -> None:
        progress = read_group_progress(self.journal, self.seen)
        self.seen = progress.seq
        self.core.apply_progress(progress, 0.0)

    # -- rollout -------------------------------------------------------------------------------------------------

    @rule(places=st.integers(1, 6))
    def work(self, places: int) -> None:
        """A worker asks: groups are opened as far as admission and the budget allow, and requests leave."""
        while (plan := self.core.plan_group(places)) is not None:
            try:
                self.journal.open_group(plan, self.core.groups.task_sampler.state())
            except BudgetFullError as full:
                self.core.mark_refused(plan, full)
                break
            self.core.mark_opened(plan, 0.0)
        requests = self.core.assign_requests("worker#1", places, 0.0)
        self.running += [ModelEpisode(request, [self.published]) for request in requests]

    @rule(index=st.integers(0, 9))
    def sample(self, index: int) -> None:
        """A running episode gets further: with the weights that the engines use by now."""
        if self.running:
            versions = self.running[index % len(self.running)].versions
            versions += [self.published] * (len(versions) < _MOST_TOKENS)

    @rule(index=st.integers(0, 9), reward=st.sampled_from([0.0, 1.0]))
    def finish(self, index: int, reward: float) -> None:
        if self.running:
            episode = self.running.pop(index % len(self.running))
            assert self.deliver(episode, reward) is not AppendOutcome.UNKNOWN, "its request was out"
            self.tell(episode.request)

    @rule(index=st.integers(0, 9), reward=st.sampled_from([0.0, 1.0]), reported=st.booleans())
    def stray_ends(self, index: int, reward: float, *, reported: bool) -> None:
        """Perhaps its worker dies before it can tell the scheduler."""
        if self.strays:
            episode = self.strays.pop(index % len(self.strays))
            self.deliver(episode, reward)
            if reported:
                self.tell(episode.request)

    def tell(self, request: RolloutRequest) -> None:
        """The scheduler hears that a sample arrived; whoever still runs it runs it for nothing."""
        self.reported.add((request.group, request.sample))
        if self.core.mark_arrived(request, 0.0):
            needless = [episode for episode in self.running if episode.request == request]
            self.running = [episode for episode in self.running if episode.request != request]
            self.strays = [*self.strays, *needless][-_MOST_STRAYS:]

    def deliver(self, episode: ModelEpisode, reward: float) -> AppendOutcome:
        request, segments = episode.request, (history_segment(episode.versions),)
        trajectory = replace(make_trajectory(reward=reward, segments=segments), request=request)
        frames = codec.encode_trajectory(trajectory)
        digest, blob = codec.frames_digest(frames), codec.pack_frames(frames)
        assert len(blob) <= LARGEST
        status, sampled = trajectory.status, len(episode.versions)
        arrival = TrajectoryArrival(trajectory.request, reward, reward > 0, status, digest, blob, sampled)
        (outcome,), closed = self.journal.append_batch([arrival])
        if closed:
            self.follow()
        return outcome

    @rule(index=st.integers(0, 9))
    def lose(self, index: int) -> None:
        """An episode is out too long: its request is issued again, or given up, while it goes on."""
        if not self.running:
            return
        episode = self.running.pop(index % len(self.running))
        self.strays = [*self.strays, episode][-_MOST_STRAYS:]
        request = episode.request
        out = self.core.requests.finish(request)
        assert out is not None
        if self.core.handle_failure(
            out, InfraFailure.DEADLINE, "", 0.0
        ) is FailedRequestOutcome.ABANDONED and self.journal.abandon_sample(request.group, request.sample, "deadline"):
            self.follow()

    @rule(slow=st.integers(0, 2), steps=st.integers(1, 4), pushed=st.booleans())
    def a_busy_while(self, slow: int, steps: int, pushed: bool) -> None:
        """All that is allowed is opened, all but the ``slow`` oldest episodes end, the learner steps: so the slow ones
        grow old, and end with tokens of many degrees of staleness."""
        for _ in range(steps):
            self.work(MANY)
            for index in range(slow):
                self.sample(index)
            while len(self.running) > slow:
                self.finish(slow, float(self.running[slow].request.sample % 2))
            self.train()
            if pushed:
                self.push()

    # -- training ------------------------------------------------------------------------------------------------

    @rule()
    def train(self) -> None:
        """Train on a lease, as :class:`launch.training.loop.TrainingLoop` does."""
        lease = self.journal.lease_batch(self.fill.groups_to_lease)
        if lease is None or self.step == STEPS:
            return
        if self.policy is StaleTokenPolicy.WAIT:
            oldest = self.core.groups.staleness.oldest_running_step(self.step, [group.group for group in lease.groups])
            if not may_take_step(self.step, oldest, self.max_staleness):
                return
        trained: list[str] = []
        dropped: dict[str, DropReason] = {}
        for name, blob in zip(lease.trajectory_ids, self.journal.read_payloads(lease), strict=True):
            segments = codec.unpack_trajectory(blob).segments
            verdict = apply_stale_token_policy(self.policy, segments, self.lineage, self.using, self.max_staleness)
            for segment, mask in zip(segments, verdict.loss_masks, strict=True):
                for version in segment.versions[mask == 1].tolist():
                    assert self.model.staleness(version, self.using) <= self.max_staleness, (
                        "a token is trained above the bound"
                    )
                if self.policy is StaleTokenPolicy.WAIT:
                    whole = bool((mask == segment.loss_mask).all())
                    assert whole or self.took_back, "wait masks where no death gave the learner steps to take again"
            if verdict.drop is None:
                assert verdict.trained > 0
                trained.append(name)
            else:
                dropped[name] = verdict.drop
        self.journal.mark_trained(self.step + 1, trained, dropped)
        self.follow()
        already = {name for names in self.model.used.values() for name in names} | self.model.passed_over
        assert not already & {*trained, *dropped}, "a trajectory is used twice in one lineage"
        if not trained:
            self.model.passed_over |= {*dropped}
            return
        self.step += 1
        self.model.used[self.step], self.model.lost[self.step] = [*trained, *dropped], len(dropped)
        self.fill.record_step(len(dropped))
        self.using = self.add_version(self.step, self.using)
        self.set_run_state(dropped_groups=self.fill.dropped_groups)
        if self.journal.statistics().uncommitted_bytes > BUDGET // 2:
            self.checkpoint("compact")

    @precondition(lambda self: self.published != self.using)
    @rule()
    def push(self) -> None:
        self.published = self.using
        self.set_run_state(served_step=self.step)

    @rule(upto=st.sampled_from(["manifest", "commit", "compact"]))
    def checkpoint(self, upto: str) -> None:
        """The manifest makes it one.  A driver that does not come to the commit, or to the compaction, has died."""
        self.manifest, self.kept = self.step, self.using
        if upto != "manifest":
            self.journal.commit_checkpoint(self.step)
        if upto == "compact":
            self.journal.compact_payloads(self.step)
        else:
            self.everything_dies()

    # -- deaths --------------------------------------------------------------------------------------------------

    @rule(opening=st.booleans())
    def scheduler_dies(self, opening: bool) -> None:
        """Perhaps just after the journal has taken a group.  Workers go on, and their requests are issued again."""
        if opening and (plan := self.core.plan_group(1)) is not None:
            with contextlib.suppress(BudgetFullError):
                self.journal.open_group(plan, self.core.groups.task_sampler.state())
        self.strays, self.running = [*self.strays, *self.running][-_MOST_STRAYS:], []
        self.start_scheduler()

    @rule()
    def learner_dies(self) -> None:
        """Steps since the manifest are trained again; engines go on with weights that no checkpoint has."""
        self.resume()
        self.set_run_state(dropped_groups=self.fill.dropped_groups)
        self.follow()

    @rule()
    def everything_dies(self) -> None:
        self.journal.close()
        self.open_journal()
        self.start_number, self.count = self.start_number + 1, 0
        self.running, self.strays = [], []
        self.resume()
        self.published = self.using
        self.run_state = SchedulerRunState(
            training=True, served_step=self.step, dropped_groups=self.fill.dropped_groups
        )
        self.start_scheduler()

    def resume(self) -> None:
        """From the manifest, whatever the journal knows of it."""
        self.took_back = self.took_back or self.manifest < self.step
        self.journal.rewind_to_step(self.manifest)
        self.journal.commit_checkpoint(self.manifest)
        self.model.used = {step: names for step, names in self.model.used.items() if step <= self.manifest}
        self.step = self.manifest
        lost = sum(lost for step, lost in self.model.lost.items() if step <= self.step)
        self.fill = BatchFill(GROUPS_PER_STEP, SIZE, lost)
        self.using = self.add_version(self.step, self.kept)

    # -- what always holds ---------------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        return sum(map(len, self.model.used.values())) + len(self.model.passed_over)

    @invariant()
    def the_accounting_balances(self) -> None:
        accounting, now = self.journal.accounting(), self.journal.statistics()
        assert accounting.trained + accounting.dropped.get(DropReason.ALL_STALE, 0) == self.used
        assert now.reserved_bytes + now.live_bytes <= BUDGET

    @invariant()
    def every_missing_sample_has_a_request(self) -> None:
        requests = self.core.requests
        held = {
            (each.group, each.sample)
            for each in (*requests.waiting, *(out.request for out in requests.assigned.values()))
        }
        missing = {(group.plan.group, sample) for group in self.journal.list_open_groups() for sample in group.missing}
        assert missing <= held
        waiting = {(request.group, request.sample) for request in requests.waiting}
        assert not waiting & self.reported, "somebody would be sent for what is there"
        assert {group for group, _ in waiting} <= {group.plan.group for group in self.journal.list_open_groups()}
        running = {(episode.request.group, episode.request.sample) for episode in self.running}
        assert running == {(out.request.group, out.request.sample) for out in requests.assigned.values()}

    @rule()
    def something_can_go_on(self) -> None:
        """With all processes alive, and nothing but what they would do by themselves, from here: a group closes or the
        learner steps, unless it has taken its last step."""
        if self.step == STEPS:
            return
        before = self.progress
        self.push()
        self.work(MANY)
        if isinstance(self.core.groups.blocked_by, BudgetFullError) and self.manifest < self.step:
            self.checkpoint("compact")
            self.work(MANY)
        while self.running:
            self.finish(0, float(self.running[0].request.sample % 2))
        self.train()
        assert self.progress != before, "nothing can go on"

    @property
    def progress(self) -> tuple[int, int, int]:
        return self.journal.statistics().seq, self.step, self.used

    def the_run_ends(self) -> None:
        for _ in range(self.step, 10 * STEPS):
            self.something_can_go_on()
        assert self.step == STEPS, "the last step never comes"

    def no_task_is_skipped(self) -> None:
        closed = self.journal.list_closed_since(0)
        groups: dict[int, set[str]] = {each.group: {each.task} for each in closed}
        groups |= {each.plan.group: {each.plan.task} for each in self.journal.list_open_groups()}
        short = [each.group for each in closed if each.outcome is GroupOutcome.TOO_FEW_MEMBERS]
        assert count_sampler_skips(groups, short, TASKS, SEED) == 0

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.the_run_ends()
            self.no_task_is_skipped()
            self.journal.close()
            self.folder.cleanup()


TestRun = RunHistoryMachine.TestCase
TestRun.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestManyRuns(RunHistoryMachine.TestCase):
    settings = settings(max_examples=400, stateful_step_count=80, deadline=None)
