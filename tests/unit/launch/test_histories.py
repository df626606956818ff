"""Any history of a run: groups, tickets, steps, pushes, checkpoints, crashes.  If these fail, a token is trained that
is older than the bound, or all processes are alive and the run never comes to its last step.

The rules are the real ones (admission, batches, groups, journal, staleness, lineage); the model beside them is a few
dicts.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.trajectories import RUN, make_plan, make_trajectory

from actors.admission import Pace, Tuning, decide
from launch.batch_fill import BatchFill
from protocol import codec
from protocol.journal import AppendOutcome, Arrival, BudgetFull, Journal, JournalSettings
from protocol.staleness import Admission, AdmissionMode, StalePolicy, apply_policy, may_step
from protocol.trajectory import DropReason, GroupId, Segment
from protocol.weights import NO_VERSION, Lineage, Version, make_version

SIZE = 3
GROUPS_PER_STEP = 2
STEPS = 8
LARGEST = 1500
BUDGET = 2 * GROUPS_PER_STEP * SIZE * LARGEST
"""The least that the configuration allows: two batches."""


@dataclass
class Episode:
    """A ticket that is out, and the weights that have sampled for it so far."""

    versions: list[int]


@dataclass
class Model:
    """What must be so, kept apart from the code that makes it so."""

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

    def age(self, sampled: int, using: int) -> int:
        mine = self.line(using)
        common = next(version for version in self.line(sampled) if version in mine)
        return self.step_of[sampled] + self.step_of[using] - 2 * self.step_of[common]


def history_segment(versions: list[int]) -> Segment:
    """One prompt token, then a sampled token of each of ``versions``."""
    tokens = np.arange(len(versions) + 1, dtype=np.int32)
    mask = np.array([0, *[1] * len(versions)], np.uint8)
    return Segment(tokens, mask, (mask * -0.5).astype(np.float32), np.array([-1, *versions], np.int64))


class Run(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(StalePolicy), mode=st.sampled_from(AdmissionMode), eta=st.integers(1, 3))
    def begin(self, policy: StalePolicy, mode: AdmissionMode, eta: int) -> None:
        self.policy, self.eta = policy, eta
        self.admission = Admission(mode, GROUPS_PER_STEP, eta)
        self.folder = tempfile.TemporaryDirectory()
        self.open_journal()
        self.lineage, self.model = Lineage(), Model()
        self.attempt = self.count = 0
        self.step = self.committed = 0
        self.using = self.published = self.checkpoint = self.add_version(0, NO_VERSION)
        self.out: dict[tuple[int, int], Episode] = {}
        self.groups = 0
        self.fill = BatchFill(GROUPS_PER_STEP, SIZE)

    def open_journal(self) -> None:
        settings = JournalSettings(run_id=RUN, max_trajectory_bytes=LARGEST, budget_bytes=BUDGET)
        self.journal = Journal(Path(self.folder.name) / "b" / "journal.sqlite", settings, lambda _: 1 << 40)

    def add_version(self, step: int, parent: int) -> Version:
        version = make_version(self.attempt, self.count)
        self.count += 1
        self.lineage.add(version, step, Version(parent))
        self.model.step_of[version], self.model.parent_of[version] = step, parent
        return version

    # -- rollout -------------------------------------------------------------------------------------------------

    def allowed(self) -> int:
        now = self.journal.statistics()
        live = now.opened - now.dropped - now.passed_over - self.fill.lost_groups
        published = self.model.step_of[self.published]
        return decide(self.admission, Tuning(), Pace(), live=live, published_step=published, total_steps=STEPS).groups

    @rule()
    def open_group(self) -> None:
        if not self.allowed():
            return
        try:
            self.journal.open_group(make_plan(self.groups, SIZE), b"")
        except BudgetFull:
            return
        for sample in range(SIZE):
            self.out[self.groups, sample] = Episode([self.published])
        self.groups += 1

    @rule(index=st.integers(0, 9))
    def sample(self, index: int) -> None:
        """A running episode gets further: with the weights that the engines use by now."""
        if self.out:
            list(self.out.values())[index % len(self.out)].versions.append(self.published)

    @rule(index=st.integers(0, 9), reward=st.sampled_from([0.0, 1.0]))
    def finish(self, index: int, reward: float) -> None:
        if self.out:
            self.deliver(list(self.out)[index % len(self.out)], reward)

    def deliver(self, key: tuple[int, int], reward: float) -> None:
        group, sample = key
        versions = self.out.pop(key).versions
        trajectory = make_trajectory(group, sample, reward=reward, size=SIZE, segments=(history_segment(versions),))
        frames = codec.encode(trajectory)
        ticket, blob = trajectory.ticket, codec.pack(frames)
        assert len(blob) <= LARGEST
        name, status = ticket.trajectory_id, trajectory.status
        arrival = Arrival(name, ticket.group, sample, reward, status, codec.digest(frames), blob, len(versions))
        assert self.journal.append([arrival])[0] == [AppendOutcome.APPENDED]

    @rule(slow=st.integers(0, 2), pushed=st.booleans())
    def a_busy_while(self, slow: int, pushed: bool) -> None:
        """All that is allowed is opened, all but the ``slow`` oldest episodes end, the learner steps: so the slow ones
        grow old, and end with tokens of many ages."""
        for _ in range(GROUPS_PER_STEP * (self.eta + 2)):
            self.open_group()
        for index in range(slow):
            self.sample(index)
        for key in list(self.out)[slow:]:
            self.deliver(key, float(key[1] % 2))
        self.train()
        if self.journal.statistics().uncommitted_bytes > BUDGET // 2:
            self.checkpoint_now()
        if pushed:
            self.published = self.using

    @rule(index=st.integers(0, 9))
    def give_up(self, index: int) -> None:
        if self.out:
            group, sample = list(self.out)[index % len(self.out)]
            del self.out[group, sample]
            self.journal.abandon(GroupId(group), sample, "engine")

    # -- training ------------------------------------------------------------------------------------------------

    @rule()
    def train(self) -> None:
        oldest = [self.model.step_of[episode.versions[0]] for episode in self.out.values()]
        if self.policy is StalePolicy.WAIT and not may_step(self.step, min(oldest, default=None), self.eta):
            return
        lease = self.journal.lease(self.fill.groups)
        if lease is None or self.step == STEPS:
            return
        trained: list[str] = []
        dropped: dict[str, DropReason] = {}
        for name, blob in zip(lease.trajectories, self.journal.payload(lease), strict=True):
            segments = codec.loads(blob).segments
            verdict = apply_policy(self.policy, segments, self.lineage, self.using, self.eta)
            for segment, mask in zip(segments, verdict.loss_masks, strict=True):
                for version in segment.versions[mask == 1].tolist():
                    assert self.model.age(version, self.using) <= self.eta, "a token is trained above the bound"
            if verdict.drop is None:
                assert verdict.trained > 0
                trained.append(name)
            else:
                dropped[name] = verdict.drop
        self.journal.mark_trained(self.step + 1, trained, dropped)
        already = {name for names in self.model.used.values() for name in names} | self.model.passed_over
        assert not already & {*trained, *dropped}, "a trajectory is used twice in one lineage"
        if not trained:
            self.model.passed_over |= {*dropped}
        else:
            self.model.used[self.step + 1] = [*trained, *dropped]
            self.step += 1
            self.model.lost[self.step] = len(dropped)
            self.fill.stepped(len(dropped))
            self.using = self.add_version(self.step, self.using)

    @precondition(lambda self: self.published != self.using)
    @rule()
    def push(self) -> None:
        self.published = self.using

    @rule()
    def checkpoint_now(self) -> None:
        self.journal.commit(self.step)
        self.journal.compact(self.step)
        self.committed, self.checkpoint = self.step, self.using

    # -- deaths --------------------------------------------------------------------------------------------------

    @rule(all_of_it=st.booleans())
    def die(self, all_of_it: bool) -> None:
        """The learner dies, or everything; what was trained since the checkpoint is trained again."""
        self.journal.close()
        self.open_journal()
        self.journal.rewind(self.committed)
        self.model.used = {step: names for step, names in self.model.used.items() if step <= self.committed}
        self.attempt, self.count = self.attempt + 1, 0
        self.step = self.committed
        self.fill = BatchFill(
            GROUPS_PER_STEP, SIZE, sum(lost for step, lost in self.model.lost.items() if step <= self.step)
        )
        self.using = self.published = self.checkpoint = self.add_version(self.step, self.checkpoint)
        if all_of_it:
            for group in self.journal.open_groups():
                for sample in group.missing:
                    self.out[group.plan.group, sample] = Episode([self.published])

    @property
    def used(self) -> int:
        return sum(map(len, self.model.used.values())) + len(self.model.passed_over)

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def the_books_balance(self) -> None:
        books = self.journal.accounting()
        assert books.trained + books.dropped.get(DropReason.ALL_STALE, 0) == self.used
        missing = {(group.plan.group, sample) for group in self.journal.open_groups() for sample in group.missing}
        assert missing == self.out.keys()
        now = self.journal.statistics()
        assert now.reserved_bytes + now.live_bytes <= BUDGET

    @rule()
    def something_can_go_on(self) -> None:
        """With all processes alive, and nothing but what they would do by themselves, from here: a group closes or the
        learner steps, unless it has taken its last step."""
        if self.step == STEPS:
            return
        before = (self.journal.statistics().seq, self.step, self.used)
        self.published = self.using
        for _ in range(GROUPS_PER_STEP * (self.eta + 2)):
            self.open_group()
        if self.journal.statistics().uncommitted_bytes > BUDGET // 2 or not self.out:
            self.checkpoint_now()
            self.open_group()
        for key in list(self.out):
            self.deliver(key, float(key[1] % 2))
        self.train()
        after = (self.journal.statistics().seq, self.step, self.used)
        assert after != before, "nothing can go on"

    def the_run_ends(self) -> None:
        for _ in range(self.step, 10 * STEPS):
            self.something_can_go_on()
        assert self.step == STEPS, "the last step never comes"

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.the_run_ends()
            self.journal.close()
            self.folder.cleanup()


TestRun = Run.TestCase
TestRun.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestManyRuns(Run.TestCase):
    settings = settings(max_examples=400, stateful_step_count=80, deadline=None)
