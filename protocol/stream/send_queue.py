"""Trajectories that callers of a sender wait for: a byte budget, answers and deadlines, without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from protocol import codec
from protocol.journal import AppendOutcome
from protocol.stream.errors import MessageRefusedError, SenderClosedError
from protocol.stream.outbox import PendingTrajectory, PendingTrajectoryAnswer, StreamOutbox
from protocol.trajectory import RolloutRequest, Trajectory

OnAcknowledged = Callable[[RolloutRequest, AppendOutcome], None]


class SendQueue:
    """Admits trajectories to ``outbox`` within ``budget_bytes`` and gives each caller its answer."""

    def __init__(self, outbox: StreamOutbox, budget_bytes: int, on_acknowledged: OnAcknowledged | None) -> None:
        self._outbox, self._budget_bytes, self._on_acknowledged = outbox, budget_bytes, on_acknowledged
        self._answers: dict[int, asyncio.Future[AppendOutcome]] = {}
        self._changed = asyncio.Event()
        self._first_in_line = asyncio.Lock()
        """Held by the caller that waits for room; later callers queue for the lock."""
        self._waiting = 0
        """Number of callers that wait for room."""
        self.closed = True

    async def add(self, trajectory: Trajectory, deadline: float) -> PendingTrajectory:
        """Add a trajectory once the budget has room, in the order of the calls.

        Raises TimeoutError at ``deadline`` (loop time), SenderClosedError, CodecError, and MessageRefusedError.
        """
        request = trajectory.request
        if not self._waiting:
            pending = self._add_now(request, codec.encode_trajectory(trajectory))
            if pending is not None:
                return pending
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._first_in_line:
                frames = codec.encode_trajectory(trajectory)  # one waiting caller at a time: it may copy
                while (pending := self._add_now(request, frames)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return pending
        finally:
            self._waiting -= 1

    def expect_answer(self, pending: PendingTrajectory) -> asyncio.Future[AppendOutcome]:
        """Return a future of the answer; :meth:`end_wait` ends it."""
        answer = self._answers[pending.seq] = asyncio.get_running_loop().create_future()
        return answer

    def end_wait(self, pending: PendingTrajectory | None) -> None:
        """Forget the future of a caller that no longer waits, and let others look for room."""
        if pending is not None:
            self._answers.pop(pending.seq, None)
        self._changed.set()

    def settle(self, answered: Sequence[PendingTrajectoryAnswer]) -> None:
        """Report answers of the receiver and pass them to the waiting callers."""
        for pending, answer in answered:
            if self._on_acknowledged is not None and not isinstance(answer, MessageRefusedError):
                self._on_acknowledged(pending.request, answer)
            future = self._answers.get(pending.seq)
            if future is None or future.done():
                continue
            if isinstance(answer, MessageRefusedError):
                future.set_exception(MessageRefusedError(answer.reason, answer.detail))
            else:
                future.set_result(answer)
        self._changed.set()

    async def drain(self, deadline_s: float) -> list[str]:
        """Wait until everything is answered, at most ``deadline_s``; return the ids of the rest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                while self._outbox and not self.closed:
                    self._changed.clear()
                    await self._changed.wait()
        return self._outbox.unacknowledged_ids

    def close(self) -> None:
        """Raise SenderClosedError in all waiting callers."""
        self.closed = True
        self._changed.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(SenderClosedError)

    def _add_now(self, request: RolloutRequest, frames: Sequence[codec.Frame]) -> PendingTrajectory | None:
        """Add a trajectory if there is room, else return None.  Raises SenderClosedError."""
        if self.closed:
            raise SenderClosedError
        full = self._outbox and self._outbox.bytes + codec.payload_size(frames) > self._budget_bytes
        return None if full else self._outbox.add(request, frames)
