"""The pool server without HTTP: leases, their sandboxes, and the operations on them.

An allocation reserves a slot and starts nothing; a reset starts the lease's sandbox, and ends the previous one. Closing
is answered at once and done in the background, at most :attr:`PoolServiceSettings.close_concurrency` at a time. Leases
survive the server's death in its state directory (:meth:`PoolService.recover`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from protocol.errors import InfraError, UserError
from sandbox.agent_programs import AgentPrograms
from sandbox.http import failures
from sandbox.http.messages import HttpError, HttpReply
from sandbox.pool.leases import (
    EXPIRY_CHECK_S,
    LeaseAllocation,
    LeaseLimits,
    LeaseTable,
    SlotLease,
    SlotsExhausted,
    UnknownLease,
)
from sandbox.server.journal import RememberedLease, StateDirectory
from sandbox.server.lease_recovery import adopt_remembered_leases
from sandbox.server.lease_state import HostProvider, HostSandbox, LeaseState
from sandbox.server.operations import IdempotentOperations, RequestedOperation
from sandbox.server.task_source import TaskSource
from sandbox.session.shell import CommandResult
from sandbox.tasks.task import Task


@dataclass(frozen=True, slots=True)
class PoolServiceSettings:
    """Limits and intervals of a pool server."""

    leases: LeaseLimits
    expiry_check_s: float = EXPIRY_CHECK_S
    """Seconds between two checks for expired leases."""
    close_concurrency: int = 10
    """Maximum sandboxes that are ended at once."""
    adopt_concurrency: int = 64
    """Maximum sandboxes of an earlier server that are taken over at once, so that one that does not answer delays few
    of the others, whose deadline is approaching."""
    image_timeout_s: float = 300.0
    """Maximum seconds for making a task's image available."""
    reset_timeout_s: float = 300.0
    """Maximum seconds for a sandbox's start and its task's set-up."""
    slack_s: float = 60.0
    """Seconds beyond an operation's own limit before a request without a deadline gets DEADLINE."""
    admit_wait_s: float = 120.0
    """Maximum seconds that a start may have to wait; beyond it no slot is given."""
    image_list_interval_s: float = 10.0
    """Seconds between two lists of the daemon's images."""


class PoolService:
    """The service of one server; leaving its ``async with`` block ends every sandbox."""

    def __init__(
        self,
        settings: PoolServiceSettings,
        provider: HostProvider,
        tasks: TaskSource,
        state: StateDirectory,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.provider, self.tasks = settings, provider, tasks
        self.table = LeaseTable(settings.leases, now)
        self._state, self._now = state, now
        self._runs: dict[str, LeaseState] = {}
        self._group = asyncio.TaskGroup()
        self._background: list[asyncio.Task[None]] = []
        self._working: set[asyncio.Task[None]] = set()
        """Operations in progress."""
        self._ended = asyncio.Event()
        """Set when one of them has ended."""
        self._closes = asyncio.Semaphore(settings.close_concurrency)
        self.pending_closes = 0
        self.draining = False
        self.images: tuple[str, ...] = ()
        self.reaped = self.adopted = self.swept = 0

    async def __aenter__(self) -> Self:
        await self.recover()
        await self._group.__aenter__()
        self._background = [self._group.create_task(self._reap()), self._group.create_task(self._refresh_images())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.draining = True
        for task in (*self._background, *self._working):
            task.cancel()
        for lease in self.table.all():
            self.close(lease.id)
        await self._group.__aexit__(None, None, None)

    async def drain(self, within_s: float) -> None:
        """Start no operation and allocate no slot from now on.

        Requests that wait for an operation of more than ``within_s`` get the error that the server was stopped.
        """
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._working:
                    self._ended.clear()
                    await self._ended.wait()
        for task in self._working:
            task.cancel()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._group.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._ended.set()

    # ---- leases

    def allocate(self, task_key: str, request_id: str) -> LeaseAllocation:
        """Allocate a slot. Raises SlotsExhausted, HttpError while draining."""
        self._admit()
        return self._opened(self.table.allocate(task_key, request_id))

    def allocate_group(self, group: str, slots: int, request_id: str = "", *, reserve: bool = False) -> LeaseAllocation:
        """Allocate all slots of a group, reserved for later requests or, with ``request_id``, one of them for this
        request.

        Raises SlotsExhausted, GroupConflict, GroupTooLarge.
        """
        self._admit()
        if not request_id:
            return self._opened(self.table.allocate_group(group, slots, reserve=reserve))
        taken = self.table.allocate_from_group(group, slots, request_id)
        (lease,) = taken.leases
        if taken.reused:
            return taken
        if (run := self._runs.get(lease.id)) is not None:
            run.journal.record_lease(lease)
        else:
            self._opened(
                LeaseAllocation(tuple(e for e in self.table.group(group) if e.id not in self._runs), reused=False)
            )
        return taken

    def release_group(self, group: str) -> int:
        """Close all leases of a group. Returns the number of leases."""
        return sum(self.close(lease.id) for lease in self.table.group(group))

    def _admit(self) -> None:
        self._close_expired()
        self._refuse_while_draining()
        wait_s = self.provider.wait_s()
        if wait_s > self.settings.admit_wait_s:
            raise SlotsExhausted(
                "STARTS_BACKLOGGED",
                f"a start would wait {wait_s:.0f} s",
                min(wait_s - self.settings.admit_wait_s, 30.0) + 1.0,
            )

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise HttpError(503, failures.DRAINING, "this server is being stopped", retry_after_s=5.0)

    def _opened(self, allocation: LeaseAllocation) -> LeaseAllocation:
        for lease in () if allocation.reused else allocation.leases:
            run = self._run(lease)
            try:
                run.journal.record_lease(lease)
            except InfraError:
                for each in allocation.leases:
                    self.table.close(each.id)
                    self._runs.pop(each.id, None)
                raise
        return allocation

    def _run(self, lease: SlotLease) -> LeaseState:
        journal = self._state.journal(lease.id)
        operations = IdempotentOperations(self._spawn, journal, self.settings.leases.remember_s, self._now)
        run = self._runs[lease.id] = LeaseState(lease, journal, operations)
        return run

    def lease_state(self, lease_id: str) -> LeaseState:
        """Return a lease's state. Raises UnknownLease."""
        return self._runs[self.table.get(lease_id).id]

    def heartbeat(self, lease_id: str) -> None:
        """Renew a lease. Takes no lock, so that a running operation cannot delay it. Raises UnknownLease."""
        self.table.renew(lease_id)

    def close(self, lease_id: str) -> bool:
        """End a lease and its sandbox. Returns whether there was one."""
        lease = self.table.close(lease_id)
        run = self._runs.pop(lease_id, None)
        if run is not None:
            run.closed = True
            self.pending_closes += 1
            self._group.create_task(self._end(run))
        return lease is not None

    async def _end(self, run: LeaseState) -> None:
        try:
            async with self._closes:
                sandbox, run.sandbox = run.sandbox, None
                if sandbox is not None:
                    await sandbox.close()
            run.journal.remove()
        finally:
            self.pending_closes -= 1

    def _close_expired(self) -> None:
        for lease in self.table.reap():
            self.reaped += 1
            self.close(lease.id)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self.settings.expiry_check_s)
            self._close_expired()

    async def _refresh_images(self) -> None:
        while True:
            with suppress(InfraError):
                self.images = await self.provider.images()
            await asyncio.sleep(self.settings.image_list_interval_s)

    # ---- operations

    async def run_operation(
        self,
        lease_id: str,
        request: RequestedOperation,
        do: Callable[[LeaseState], Awaitable[HttpReply]],
        limit_s: Callable[[LeaseState], float],
        deadline_s: float | None = None,
    ) -> HttpReply:
        """Run ``do`` once for this request; the lease lives at least until it ends.

        An operation that has not started by ``deadline_s`` is not started. Without a deadline it may take ``limit_s``
        from its start. Raises UnknownLease.
        """
        run, now = self.lease_state(lease_id), self._now
        ends_at = now() + deadline_s if deadline_s else None

        async def bounded() -> HttpReply:
            self._refuse_while_draining()
            with self.table.operation(lease_id):
                until = ends_at or now() + limit_s(run) + self.settings.slack_s
                if now() >= until:
                    raise HttpError(504, failures.NOT_BEGUN, "it was not started before its deadline")
                async with asyncio.timeout(until - now()):
                    return await do(run)

        return await run.operations.run_once(request, bounded)

    async def reset(
        self, run: LeaseState, meta: Mapping[str, Any], evaluate_s: float | None, programs: AgentPrograms | None = None
    ) -> Task:
        """Start a fresh sandbox for the lease, with an agent's programs. Raises UserError, SandboxStartError, and
        UnknownLease if the lease was closed meanwhile."""
        task = await asyncio.to_thread(self.tasks.resolve, meta)
        if programs is not None and programs.folder not in self.provider.agent_programs():
            harness = programs.folder.rpartition("/")[2]
            raise UserError(
                f"the machine of this pool server has no {harness}: run `longshore harness install "
                f"{harness.rsplit('-', 2)[0]}` there"
            )
        before, run.sandbox, run.lost = run.sandbox, None, None
        if before is not None:
            await before.close()
        sandbox = await self.provider.open(task, programs=programs)
        if run.closed:
            await sandbox.close()
            raise UnknownLease(run.lease.id)
        run.sandbox, run.task, run.evaluate_s, run.step = sandbox, task, evaluate_s, None
        run.journal.record_sandbox(sandbox.container, {"task_meta": dict(meta), "evaluate_s": evaluate_s})
        return task

    def require_sandbox(self, run: LeaseState) -> tuple[HostSandbox, Task]:
        """Return the lease's sandbox. Raises SandboxLost, HttpError before the first reset."""
        if run.lost is not None:
            raise run.lost
        if run.closed:
            raise UnknownLease(run.lease.id)
        if run.sandbox is None or run.task is None:
            raise HttpError(409, failures.NOT_RESET, "the lease has no sandbox: call /reset first")
        return run.sandbox, run.task

    def require_step(self, run: LeaseState) -> None:
        """Raise HttpError if the lease's task has steps and none has begun."""
        if run.task is not None and run.task.steps and run.step is None:
            raise HttpError(409, failures.NOT_RESET, "the task has steps, and none has begun: call /begin_step first")

    async def begin_step(self, run: LeaseState, step: int) -> None:
        """Begin a step of the lease's task.  Raises HttpError for a step that it does not have."""
        sandbox, task = self.require_sandbox(run)
        if step >= len(task.steps):
            raise HttpError(400, failures.BAD_REQUEST, f"the task has {len(task.steps)} steps: there is no step {step}")
        await sandbox.begin_step(step)
        run.step = step
        run.journal.record_step(step)

    async def run_agent(self, run: LeaseState, command: str, timeout_s: float, port: int) -> CommandResult:
        """Run an agent's program, whose connections the requests of its client carry, until it ends, its client
        interrupts it or is gone, or its time is up."""
        sandbox, _ = self.require_sandbox(run)
        run.interrupted, ends_at = False, self._now() + timeout_s

        def remaining_s() -> float:
            return 0.0 if run.interrupted else min(ends_at, run.lease.deadline) - self._now()

        async with sandbox.listen(port) as listener, run.agent_port.serve(listener):
            return await sandbox.run_agent(command, remaining_s, lambda _: None)

    # ---- after a restart

    async def recover(self) -> None:
        """Take over what an earlier server of this state directory left, and remove what belongs to no lease.

        Raises DockerEngineError if the daemon does not answer.
        """
        self.adopted += await adopt_remembered_leases(
            self.provider, self.tasks, self._state, self._restore, at_once=self.settings.adopt_concurrency
        )
        self.swept += await self.provider.remove_orphans()

    def _restore(self, remembered: RememberedLease) -> LeaseState:
        self.table.restore(remembered.lease)
        state = self._run(remembered.lease)
        for known in remembered.operations.values():
            state.operations.restore(known)
        return state
