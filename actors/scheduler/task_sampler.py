"""The task sampler, which draws the next task.  Pure; its state is stored in the journal with every group."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

from actors.buffer.task_records import TaskRecord, TaskRecords, record_outcome
from actors.scheduler.curriculum import Curriculum, TaskOrder, make_curriculum
from protocol.errors import UserError
from protocol.groups import GroupOutcome
from protocol.journal import ClosedGroup

CanStart = Callable[[str], bool]
"""Returns whether a task can start now."""


def closings_seen_by(state: bytes | None) -> tuple[int, int]:
    """Return the numbers of closings that a sampler had seen when it ordered its epoch and when it saved ``state``."""
    if not state:
        return 0, 0
    saved = orjson.loads(state)
    return int(saved["epoch_closings_seen"]), int(saved["closings_seen"])


@dataclass(slots=True)
class TaskSampler:
    """Draws ``tasks`` epoch after epoch in the order of ``order``, and never skips or repeats one across a resume.

    Invariants: every usable task has one turn an epoch, and is drawn then if it can start.  Otherwise it is put off: it
    is drawn before all later ones once it can, once for all turns that it missed.  An epoch begins only if less than
    half of the tasks are put off, so that a few fast builds are not trained alone.
    A task whose group infrastructure wasted is drawn once more, first, and only once.  Apart from what can start, the
    sampler depends only on its :meth:`state` and the journal's closings: the state has the number of closings seen, so
    after a restart the sampler sees each later one exactly once.
    """

    tasks: tuple[str, ...]
    seed: int
    order: TaskOrder
    position: int = 0
    """Number of tasks drawn in order; repeated draws do not count."""
    next_group: int = 0
    """Number of groups ever opened."""
    closings_seen: int = 0
    """Number of closings seen."""
    put_off: list[str] = field(default_factory=list[str])
    """Tasks whose turn came while they could not start, in their order."""
    unusable: set[str] = field(default_factory=set[str])
    """Tasks that are not drawn.  It is no part of the state: after a restart they may have been repaired."""
    returned: list[str] = field(default_factory=list[str])
    returned_once: set[str] = field(default_factory=set[str])
    _records: dict[str, TaskRecord] = field(default_factory=dict[str, TaskRecord])
    _epoch: int = -1
    """The epoch of ``_indices``."""
    _epoch_closings_seen: int = 0
    """Number of closings seen when that epoch was ordered."""
    _indices: Sequence[int] = ()
    _drawn_at: tuple[list[str], int] | None = None
    """List and place that the last task was taken from; None if it was drawn in order."""
    _curriculum: Curriculum = field(init=False)
    _digest: str = field(init=False)
    """Digest of the values that must be the same after a resume."""

    def __post_init__(self) -> None:
        self._curriculum = make_curriculum(self.order, self.seed)
        same = "\0".join((*self.tasks, str(self.seed), self.order))
        self._digest = hashlib.sha256(same.encode()).hexdigest()[:16]

    def draw_task(self, can_start: CanStart = lambda _: True) -> tuple[int, str] | None:
        """Draw the next group id and its task; None if no task whose turn it is can start."""
        if (task := self._take_waiting(can_start)) is None and (task := self._take_in_order(can_start)) is None:
            return None
        group = self.next_group
        self.next_group += 1
        return group, task

    def _take_waiting(self, can_start: CanStart) -> str | None:
        for tasks in (self.returned, self.put_off):
            for at, task in enumerate(tasks):
                if task not in self.unusable and can_start(task):
                    self._drawn_at = tasks, at
                    return tasks.pop(at)
        return None

    def _take_in_order(self, can_start: CanStart) -> str | None:
        self._drawn_at = None
        for _ in self.tasks:
            epoch, index = divmod(self.position, len(self.tasks))
            if epoch != self._epoch:
                usable = len(self.tasks) - len(self.unusable)
                if not usable or 2 * len(set(self.put_off) - self.unusable) >= usable:
                    return None
                self._begin_epoch(epoch, self.closings_seen)
            task = self.tasks[self._indices[index]]
            self.position += 1
            if task in self.unusable:
                continue
            if can_start(task):
                return task
            if task not in self.put_off:
                self.put_off.append(task)
        return None

    def upcoming_tasks(self) -> Sequence[str]:
        """Return every task once, in the order in which they would be drawn if all could start."""
        epoch, index = divmod(self.position, len(self.tasks))
        indices = self._indices if epoch == self._epoch else self._order_epoch(epoch)
        in_order = [self.tasks[each] for each in (*indices[index:], *indices[:index])]
        return list(dict.fromkeys((*self.returned, *self.put_off, *in_order)))

    @property
    def epoch(self) -> int:
        """Number of the newest epoch; −1 before the first."""
        return self._epoch

    @property
    def epoch_order(self) -> Sequence[str]:
        """The tasks of :attr:`epoch` in their order."""
        return [self.tasks[index] for index in self._indices]

    @property
    def tried_tasks(self) -> int:
        """Number of tasks of which a group has closed with a reward."""
        return sum(record.episodes > 0 for record in self._records.values())

    def undo_draw(self, task: str) -> None:
        """Undo the last :meth:`draw_task`, which returned ``task``: its group was not opened."""
        self.next_group -= 1
        if self._drawn_at is None:
            self.position -= 1
        else:
            tasks, at = self._drawn_at
            tasks.insert(at, task)

    def record_closing(self, closing: ClosedGroup) -> bool:
        """Record a closing, in the order of ``seq``.  Return True if its task will be drawn again because of it."""
        if closing.seq <= self.closings_seen:
            return False
        record_outcome(self._records, closing)
        self.closings_seen = closing.seq
        wasted = closing.outcome is GroupOutcome.TOO_FEW_MEMBERS and closing.task not in self.returned_once
        if wasted:
            self.returned_once.add(closing.task)
            self.returned.append(closing.task)
        return wasted

    def state(self) -> bytes:
        """Return the state for :meth:`restore`."""
        return orjson.dumps(
            {
                "tasks": self._digest,
                "position": self.position,
                "next_group": self.next_group,
                "closings_seen": self.closings_seen,
                "epoch": self._epoch,
                "epoch_closings_seen": self._epoch_closings_seen,
                "put_off": self.put_off,
                "returned": self.returned,
                "returned_once": sorted(self.returned_once),
            }
        )

    def restore(self, state: bytes | None, at_epoch: TaskRecords, at_state: TaskRecords) -> None:
        """Continue from ``state``; None means before the first group.

        The records are those after the numbers of closings that :func:`closings_seen_by` returns; the caller records
        later closings.  Raises UserError if the tasks are not those of ``state``."""
        saved = orjson.loads(state) if state else None
        if saved is None:
            return
        if saved["tasks"] != self._digest:
            raise UserError(
                f"the run's tasks differ from those that it began with (now {len(self.tasks)}, in another order or of "
                "another kind), so some would be skipped and others repeated: resume with the original data, or start "
                "a new run"
            )
        self.position, self.next_group = int(saved["position"]), int(saved["next_group"])
        self.put_off = list(saved["put_off"])
        self.returned, self.returned_once = list(saved["returned"]), set(saved["returned_once"])
        self._records = dict(at_epoch)
        if saved["epoch"] >= 0:
            self._begin_epoch(int(saved["epoch"]), int(saved["epoch_closings_seen"]))
        self._records, self.closings_seen = dict(at_state), int(saved["closings_seen"])

    def _begin_epoch(self, epoch: int, closings_seen: int) -> None:
        indices = self._order_epoch(epoch)
        self._epoch, self._epoch_closings_seen, self._indices = epoch, closings_seen, indices

    def _order_epoch(self, epoch: int) -> Sequence[int]:
        known = {task: record for task, record in self._records.items() if record.episodes}
        indices = self._curriculum(epoch, self.tasks, known)
        if sorted(indices) != list(range(len(self.tasks))):
            raise ValueError(f"the order {self.order} of epoch {epoch} omits or repeats tasks")
        return indices
