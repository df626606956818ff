"""What the conductor decides, apart from the actor that carries it out: a state machine without clock, I/O or Ray.

It owns the task cursor, the tickets and the groups that are open; time is an argument, and every decision goes to
``say`` as an event with its reason.  Whoever drives it keeps one promise: between :meth:`Dispatch.plan` and
:meth:`Dispatch.opened` the group is made durable in the journal.  The conductor drives it beside the buffer, and
:mod:`launch.simulate` on a virtual clock.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from actors.admission import Decision, Flow, GroupTimes, Hold, Pace, Tuning, decide
from actors.curriculum import Records, TaskOrder
from actors.cursor import TaskCursor
from actors.failure_rates import FailureRates
from actors.progress import Progress
from actors.tickets import Out, Tickets, key_of
from protocol.errors import UserError
from protocol.events import Json
from protocol.groups import GroupOutcome, GroupPlan
from protocol.journal import BudgetFull, DiskFull, GroupClosed, OpenGroup
from protocol.staleness import Admission, binding_step
from protocol.trajectory import TRAIN, GroupId, InfraFailure, Ticket

_FRUITLESS_STEPS = 8
"""Steps' worth of groups in a row that infrastructure wasted: what fails so long does not mend itself."""
_RATED_ATTEMPTS = 500
"""Of training, that end between two words on how many infrastructure failed: fifty in each tenth."""
_SHOWN_TASKS = 8
"""Of an epoch's order, in the event that tells of it; seed, epoch and what was heard give the rest again."""


class Say(Protocol):
    """Where events go: :meth:`protocol.events.EventLog.emit`."""

    def __call__(self, kind: str, **fields: Json) -> None: ...


_PLAIN = Tuning()


@dataclass(frozen=True, slots=True)
class ConductorSettings:
    run_id: str
    run_dir: Path
    node: str
    tasks: tuple[str, ...]
    group_size: int
    admission: Admission
    total_steps: int
    replacement_limit: int
    """How often a sample's ticket is issued again after infrastructure failed it."""
    ticket_deadline_s: float
    """A ticket that is out longer is lost; above the episode's own deadline."""
    seed: int
    order: TaskOrder = TaskOrder.LISTED
    tuning: Tuning = _PLAIN
    """What the run begins with."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the run stands.  The driver's to say, again and again: a restarted conductor learns it so."""

    training: bool = False
    """Groups may be opened."""
    published_step: int = 0
    """The step of the weights that every engine serves."""
    step_s: float | None = None
    """What a step takes the learner, waiting left out; None before the first."""
    lost_groups: int = 0
    """Groups' worth of trajectories that steps dropped for their age: others were leased in their place."""
    flow: Flow = Flow.RUN
    tuning: Tuning | None = None
    """What a person has changed; None for what the run began with."""


class Fate(StrEnum):
    """What becomes of a ticket that infrastructure failed."""

    REISSUED = "reissued"
    SETTLED = "settled"
    """Its sample came by another attempt, or its group has closed without it."""
    ABANDONED = "abandoned"
    """The last replacement of a training sample: the journal is to be told."""
    EVALUATION_FAILED = "evaluation_failed"
    """The last replacement of an evaluation's attempt."""


@dataclass(slots=True)
class _Group:
    task: str
    step: int
    """Published when it was opened: none of its tokens is made by older weights."""
    opened_s: float | None
    """None for one that was open before this conductor began."""


@dataclass(slots=True)
class Dispatch:
    settings: ConductorSettings
    say: Say
    cursor: TaskCursor = field(init=False)
    tickets: Tickets = field(default_factory=Tickets)
    standing: Standing = field(default_factory=Standing)
    hold: Hold | None = Hold.NOT_TRAINING
    """Why no group was opened when one was last asked for."""
    blocked: BudgetFull | DiskFull | None = None
    """What the journal said when it refused a group."""
    ready: int = 0
    """Groups that closed and are not trained yet."""
    _planned: GroupPlan | None = None
    """Taken from the cursor, and not known to be open."""
    _progress: Progress | None = None
    _open: dict[GroupId, _Group] = field(default_factory=dict[GroupId, _Group])
    _closed: dict[GroupId, int] = field(default_factory=dict[GroupId, int])
    """Ready group → its step; those that cannot be waiting any more are forgotten."""
    _leased: tuple[int, tuple[GroupId, ...]] = (-1, ())
    _owed: deque[GroupClosed] = field(default_factory=deque[GroupClosed])
    """Groups that fill no step and have not been replaced."""
    _times: GroupTimes = field(init=False)
    _rates: FailureRates = field(default_factory=FailureRates)
    _advised: bool = False
    """The last word on the rates of failures was an advisory."""
    _wasted: int = 0
    """Groups in a row of which infrastructure left too little."""
    _failure: str = ""
    """What infrastructure failed last."""
    _said: Hold | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        self.cursor = TaskCursor(settings.tasks, settings.seed, settings.order)
        self._times = GroupTimes(settings.admission.groups_per_step)

    # -- where the run stands ------------------------------------------------------------------------------------

    @property
    def tuning(self) -> Tuning:
        return self.standing.tuning or self.settings.tuning

    @property
    def pace(self) -> Pace:
        return Pace(self._times.mean_s, self.standing.step_s)

    @property
    def open_groups(self) -> int:
        return len(self._open)

    @property
    def live(self) -> int:
        """Groups opened, less those that fill no step."""
        progress = self._progress
        useless = progress.dropped + progress.passed_over if progress else 0
        return self.cursor.next_group - useless - self.standing.lost_groups

    def stand(self, standing: Standing) -> None:
        """The run stands here.  When training begins, its tickets may leave; when it ends, they are forgotten."""
        before, tuning = self.standing, self.tuning
        self.standing = standing
        if before.training and not standing.training:
            self._planned = None
            self._tell_rates()
            if count := self.tickets.forget(TRAIN):
                self.say("tickets.forgotten", tickets=count, reason="training_over")
        if standing.training:
            self.tickets.release()
        if standing.flow is not before.flow:
            self.say("conductor.flow", flow=standing.flow.value, was=before.flow.value, open_groups=len(self._open))
        if self.tuning != tuning:
            new = self.tuning
            self.say(
                "conductor.retuned",
                in_flight=new.in_flight,
                lead=new.lead,
                slack=new.slack,
                publish_every=new.publish_every,
                was=str(tuning),
            )

    def restore(
        self, state: bytes | None, records: tuple[Records, Records], progress: Progress, closings: Iterable[GroupClosed]
    ) -> None:
        """Go on from the journal: the newest cursor's state and the records that belong to it, where the journal's
        count stands, and what closed since that state."""
        self.cursor.restore(state, *records)
        for closing in closings:
            self.cursor.hear(closing)
        self._progress, self.ready = progress, progress.ready

    def reopen(self, groups: Sequence[OpenGroup]) -> None:
        """Issue again, as soon as there is training, what was out when the former conductor ended."""
        for group in groups:
            self._open[group.plan.group] = _Group(group.plan.task, self.standing.published_step, None)
            self._issue(group.plan, group.missing)
        if groups:
            missing = sum(len(group.missing) for group in groups)
            self.say("conductor.restored", open_groups=len(groups), tickets=missing, next_group=self.cursor.next_group)

    # -- groups --------------------------------------------------------------------------------------------------

    def plan(self, free: int) -> GroupPlan | None:
        """The next group to open for ``free`` places, None when none should be; :attr:`hold` then says why.  It is the
        same one until :meth:`opened` or :meth:`refused`: whoever was to open it may have been cancelled, and nobody
        knows whether the journal has it."""
        if len(self.tickets.waiting) >= self._room(free):
            self._held(self._closed_gate() or (Hold.IN_FLIGHT if free > 0 and self._room(free) <= 0 else None))
            return None
        if self._planned is not None and self._closed_gate() is None:
            return self._planned
        decision = self._decide()
        if decision.hold is not None:
            self._held(decision.hold, lead=round(decision.lead, 3))
            return None
        group, task = self._take()
        seeds = tuple(
            random.Random(f"{self.settings.seed}/{group}/{sample}").getrandbits(31)
            for sample in range(self.settings.group_size)
        )
        self._planned = GroupPlan(GroupId(group), task, seeds)
        return self._planned

    def _take(self) -> tuple[int, str]:
        """The cursor's next group and task; that it has ordered another epoch is told."""
        cursor, epoch = self.cursor, self.cursor.epoch
        taken = cursor.take()
        if cursor.epoch != epoch:
            self.say(
                "epoch.ordered",
                epoch=cursor.epoch,
                reason=cursor.order.value,
                tasks=len(cursor.tasks),
                tried=cursor.tried,
                heard=cursor.heard,
                first=list(cursor.epoch_order[:_SHOWN_TASKS]),
            )
        return taken

    def opened(self, plan: GroupPlan, now: float) -> None:
        """``plan`` and the cursor's state are durable: its tickets may leave, unless training has ended meanwhile."""
        self._planned = None
        per_step = self.settings.admission.groups_per_step
        step = self.live - 1
        replaced = self._owed.popleft() if self._owed else None
        reason = f"for step {step // per_step + 1}"
        if replaced is not None:
            reason = f"replaces group {replaced.group}, {replaced.outcome.value}"
        self.say(
            "group.admitted",
            group=plan.group,
            task=plan.task,
            reason=reason,
            expected_age=round(max(0.0, step / per_step - self.standing.published_step), 3),
        )
        self.blocked, self.hold, self._said = None, None, None
        self._open[plan.group] = _Group(plan.task, self.standing.published_step, now)
        self._issue(plan, range(plan.size))

    def refused(self, plan: GroupPlan, full: BudgetFull | DiskFull) -> None:
        """The journal has no room for ``plan``: its task is the next one still."""
        self._planned = None
        self.cursor.put_back(plan.task)
        if type(self.blocked) is not type(full):
            self.say("admission.blocked", reason=str(full))
        self.blocked = full
        self._held(Hold.DISK if isinstance(full, DiskFull) else Hold.BYTES)

    def news(self, progress: Progress, now: float) -> None:
        """What the journal says: which groups closed, and how many fill no step."""
        self._progress, self.ready = progress, progress.ready
        for closing in progress.closed:
            group = self._open.pop(closing.group, None)
            if self.cursor.hear(closing):
                self.say("task.returned", task=closing.task, group=closing.group, reason=closing.outcome.value)
            self._wasted = self._wasted + 1 if closing.outcome is GroupOutcome.INFRA_SHORT else 0
            if closing.outcome.drop_reason is not None:
                self._owed.append(closing)
            if group is None:
                continue
            if group.opened_s is not None:
                self._times.add(now - group.opened_s)
            if closing.outcome is GroupOutcome.READY:
                self._closed[closing.group] = group.step
        if progress.closed:
            self._settle_closed({closing.group for closing in progress.closed})
        self._forget_trained()
        if self.standing.flow is Flow.DRAIN and progress.closed and not self._open:
            self.say("conductor.drained", ready=self.ready)

    @property
    def hopeless(self) -> str | None:
        """Why no further group should be tried; None as long as some come to an end."""
        if self._wasted < _FRUITLESS_STEPS * self.settings.admission.groups_per_step:
            return None
        return (
            f"infrastructure wasted {self._wasted} groups in a row, at last by {self._failure}; nothing is lost: mend "
            "that and go on with the run"
        )

    def binding_step(self, step: int, leased: Sequence[GroupId]) -> int | None:
        """The step that bounds what the learner may do after it has taken step ``step`` + 1 on ``leased``; see
        :func:`protocol.staleness.binding_step`.  None when no running group is bound."""
        before, groups = self._leased
        if step > before:
            for group in groups:
                self._closed.pop(group, None)
        self._leased = (step, tuple(leased))
        rest = [(group, at) for group, at in self._closed.items() if group not in leased]
        return binding_step(
            running=[group.step for group in self._open.values()],
            ready=[at for _, at in rest],
            groups_per_step=self.settings.admission.groups_per_step,
        )

    def _forget_trained(self) -> None:
        """More groups than can be waiting have closed: the first of them are trained."""
        for group in list(self._closed)[: max(0, len(self._closed) - self.ready - len(self._leased[1]))]:
            del self._closed[group]

    def _closed_gate(self) -> Hold | None:
        if not self.standing.training:
            return Hold.NOT_TRAINING
        return {Flow.PAUSE: Hold.PAUSED, Flow.DRAIN: Hold.DRAINING}.get(self.standing.flow)

    def _decide(self) -> Decision:
        settings = self.settings
        if (gate := self._closed_gate()) is not None:
            return Decision(0, gate, 0.0)
        return decide(
            settings.admission,
            self.tuning,
            self.pace,
            live=self.live,
            published_step=self.standing.published_step,
            total_steps=settings.total_steps,
            publish_every=self.tuning.publish_every,
        )

    def _held(self, hold: Hold | None, **fields: Json) -> None:
        self.hold = hold
        if hold is not None and hold is not self._said:
            self._said = hold
            published = self.standing.published_step
            self.say("admission.held", reason=hold.value, live=self.live, published_step=published, **fields)

    def _issue(self, plan: GroupPlan, samples: Sequence[int]) -> None:
        issue = self.tickets.add if self.standing.training else self.tickets.keep_back
        for sample in samples:
            issue(plan.ticket(self.settings.run_id, sample))

    def require_open(self, group: GroupId) -> None:
        """Raises UserError."""
        if group not in self._open:
            oldest = f"; the oldest that is open is {min(self._open)}" if self._open else "; no group is open now"
            raise UserError(f"group {group} is not open: it has closed, or has not begun{oldest}")

    def cancel(self, group: GroupId, sample: int | None) -> tuple[int, ...]:
        """A person gives up a sample of an open group, or all that is to come of it: which samples those are."""

        def unwanted(ticket: Ticket) -> bool:
            return ticket.purpose == TRAIN and ticket.group == group and sample in {None, ticket.sample}

        tickets = self.tickets.cancel(unwanted)
        for ticket in tickets:
            self.say("ticket.cancelled", trajectory=ticket.trajectory_id, attempt=ticket.attempt)
        return tuple(sorted(ticket.sample for ticket in tickets))

    # -- tickets -------------------------------------------------------------------------------------------------

    def hand_out(self, worker: str, free: int, now: float) -> list[Ticket]:
        """Up to ``free`` waiting tickets for ``worker`` (name#incarnation)."""
        return self.tickets.hand_out(worker, self._room(free), now, now + self.settings.ticket_deadline_s)

    def arrived(self, ticket: Ticket, now: float) -> bool:
        """What ``ticket`` was for is done: nobody need be sent for it any more.  False when ``ticket`` was not out (a
        lost worker had it, or a former conductor gave it)."""
        self._withdraw(lambda waiting: key_of(waiting) == key_of(ticket), "arrived")
        if (out := self.tickets.finish(ticket)) is None:
            self.tickets.settle(key_of(ticket))
            return False
        self._ended(out, now, failed=False)
        return True

    def lost(self, out: Out, failure: InfraFailure, detail: str, now: float) -> Fate:
        """Infrastructure failed a ticket, which is no longer ``out``."""
        ticket = out.ticket
        self._ended(out, now, failed=True)
        self.say("episode.failed", trajectory=ticket.trajectory_id, reason=failure.value, detail=detail)
        self._failure = f"{failure.value}: {' '.join(detail.split())[:300]}"
        if out.settled:
            return Fate.SETTLED
        if ticket.attempt < self.settings.replacement_limit:
            again = self.tickets.reissue(ticket, failure)
            self.say("ticket.reissued", trajectory=ticket.trajectory_id, attempt=again.attempt, reason=failure.value)
            return Fate.REISSUED
        if ticket.purpose != TRAIN:
            return Fate.EVALUATION_FAILED
        self.say("sample.abandoned", trajectory=ticket.trajectory_id, attempts=ticket.attempt + 1, reason=failure.value)
        return Fate.ABANDONED

    def _ended(self, out: Out, now: float, *, failed: bool) -> None:
        if out.ticket.purpose == TRAIN:
            self._rates.add(now - out.since, failed=failed)
        if len(self._rates) >= _RATED_ATTEMPTS:
            self._tell_rates()

    def _tell_rates(self) -> None:
        if (rates := self._rates.take()) is None:
            return
        self.say("infra.rates", attempts=rates.attempts, failed=rates.failed, by_decile=list(rates.by_decile))
        if (advice := rates.advice) is not None:
            self.say("advisory", about="infra_rates", text=advice)
        elif self._advised:
            self.say("advisory.over", about="infra_rates")
        self._advised = advice is not None

    def _settle_closed(self, groups: Collection[GroupId]) -> None:
        """Nobody need be sent for a group that has closed."""

        def done(ticket: Ticket) -> bool:
            return ticket.purpose == TRAIN and ticket.group in groups

        self._withdraw(done, "group_closed")
        for key in [key for key, out in self.tickets.out.items() if done(out.ticket)]:
            self.tickets.settle(key)

    def _withdraw(self, needless: Callable[[Ticket], bool], reason: str) -> None:
        for ticket in self.tickets.withdraw(needless):
            self.say("ticket.withdrawn", trajectory=ticket.trajectory_id, attempt=ticket.attempt, reason=reason)

    def _room(self, free: int) -> int:
        """Tickets that may leave to ``free`` places."""
        if self.standing.flow is Flow.PAUSE:
            return 0
        bound = self.tuning.in_flight
        return max(0, min(free, bound - len(self.tickets.out))) if bound else free
