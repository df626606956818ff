"""Runs each operation of a lease exactly once, whatever its client does.

An operation belongs to the server: a client that disconnects does not end it. With a request id, a repeated request
gets the first one's reply: while it still runs, and even after the server was killed (from the journal; or the outcome
is unknown, and it is never done a second time). Without a request id, a request that equals an operation whose reply
has not been delivered gets that operation's reply, because that is what a client's blind retry looks like, whether or
not the server has noticed that the first connection is dead. A reply that was sent and then lost cannot be told from
one that was received; clients that need this give a request id. So do clients that repeat, on purpose, a request that
failed and may have been done: without an id such a request gets the failure again. It is done anew after a reset, which
may itself be repeated at any time, or when its reply is no longer remembered.

Operations of one lease run one after the other. What is remembered of them is bounded: replies by their bytes (a
request whose reply is gone is told so and not done again), everything else by time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from protocol.errors import InfraError
from sandbox.http import failures
from sandbox.http.messages import HttpError, HttpReply
from sandbox.server.operation_record import KnownOperation, OperationRecord

_log = logging.getLogger(__name__)
MAX_REPLY_BYTES = 1 << 20
"""Bytes of one lease's replies that are kept for repeated requests."""
RESET = "reset"
"""The operation that starts afresh, however often it is done."""


class RequestingClient(Protocol):
    """The connection of a request."""

    async def wait_until_gone(self) -> None:
        """Return when the client has disconnected, else never."""
        ...


class RequestedOperation(NamedTuple):
    """A request for an operation."""

    what: str
    """Name of the operation."""
    digest: str
    """Hash of the request: equal for a request and its repetition."""
    request_id: str
    """Empty for none."""
    client: RequestingClient


@dataclass(slots=True)
class _Operation:
    key: str
    digest: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    reply: HttpReply | None = None
    waiting: int = 0
    """Number of requests that wait for the reply."""
    ended_at: float = 0.0

    @property
    def is_blind(self) -> bool:
        return "/" not in self.key

    @property
    def is_reset(self) -> bool:
        return self.key.startswith((f"{RESET}/", f"{RESET}#"))

    @property
    def is_settled(self) -> bool:
        """Whether it succeeded or left nothing done, so that a client that got the reply and asks again means a new
        operation."""
        if self.is_reset or self.reply is None:
            return self.is_reset
        return self.reply.status == 200 or self.reply.value()["code"] not in failures.UNCERTAIN_CODES


class IdempotentOperations:
    """The operations of one lease."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[None, None, None]], object],
        record: OperationRecord,
        remember_s: float,
        now: Callable[[], float],
    ) -> None:
        """``spawn`` starts work that outlives its request; when that work is cancelled, the request is told so."""
        self._spawn, self._record, self._remember_s, self._now = spawn, record, remember_s, now
        self._known: dict[str, _Operation] = {}
        """Operations in the order in which they began, which is also the order in which they end."""
        self._reply_bytes = 0
        self._count = 0
        self._turn = asyncio.Lock()

    def restore(self, known: KnownOperation) -> None:
        """Take over an operation of an earlier server; without a reply, its outcome is unknown."""
        operation = _Operation(known.key, known.digest, ended_at=self._now())
        unknown = "the server was restarted while this ran; it is not done a second time"
        self._keep(operation, known.reply or _outcome_unknown(unknown))
        operation.done.set()
        self._known[known.key] = operation
        if operation.is_blind:
            self._count = max(self._count, int(known.key.partition("#")[2]))

    async def run_once(self, asked: RequestedOperation, do: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
        """Do the operation, or join it, or return its reply again.

        Raises HttpError for a request id that another request has used.
        """
        self._forget_old()
        operation = self._find(asked)
        if operation is None:
            self._count += 1
            key = f"{asked.what}/{asked.request_id}" if asked.request_id else f"{asked.what}#{self._count}"
            operation = self._known[key] = _Operation(key, asked.digest)
            self._spawn(self._perform(operation, do))
        heard = await self._waited(operation, asked.client)
        if heard and operation.is_settled:
            self._heard(operation)
        return operation.reply or HttpError(503, failures.DRAINING, "the server was stopped under this").reply()

    async def _waited(self, operation: _Operation, client: RequestingClient) -> bool:
        """Wait for the operation's end. Returns whether the client is still connected then."""
        there = True

        async def watch() -> None:
            nonlocal there
            await client.wait_until_gone()
            there = False

        operation.waiting += 1
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch())
                await operation.done.wait()
                await asyncio.sleep(0)  # an end of the connection that came together with the operation's is seen
                watching.cancel()
        finally:
            operation.waiting -= 1
        return there

    def _find(self, asked: RequestedOperation) -> _Operation | None:
        if asked.request_id:
            operation = self._known.get(f"{asked.what}/{asked.request_id}")
            if operation is not None and operation.digest not in ("", asked.digest):
                raise HttpError(409, failures.REUSED_ID, f"request id {asked.request_id} was used for another request")
            return operation
        blind = f"{asked.what}#"
        return next((e for e in self._known.values() if e.key.startswith(blind) and e.digest == asked.digest), None)

    async def _perform(self, operation: _Operation, do: Callable[[], Awaitable[HttpReply]]) -> None:
        try:
            async with self._turn:
                reply = await self._attempt(operation, do)
                self._keep(operation, reply)
                if operation.is_reset and reply.status == 200:
                    self._begin_afresh()
                with contextlib.suppress(InfraError):  # not written: after a restart its outcome is unknown
                    self._record.end(operation.key, reply)
                    if self._record.is_long:
                        self._record.rewrite(self._all())
        finally:
            operation.ended_at = self._now()
            operation.done.set()

    async def _attempt(self, operation: _Operation, do: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
        try:
            self._record.begin(operation.key, operation.digest)
            return await do()
        except Exception as error:  # noqa: BLE001  the boundary: every failure is a reply, and a defect is logged
            failure = failures.to_http_error(error)
            if failure.status == 500:
                _log.exception("an operation failed by a defect")
            return failure.reply()

    def _keep(self, operation: _Operation, reply: HttpReply) -> None:
        """Keep a reply; when all replies are too large, the oldest ones that nobody waits for are dropped."""
        self._set_reply(operation, reply)
        if self._reply_bytes <= MAX_REPLY_BYTES:
            return
        for each in self._known.values():
            if each is not operation and each.done.is_set() and not each.waiting:
                self._set_reply(each, _outcome_unknown("it was done, and its reply is no longer kept"))
            if self._reply_bytes <= MAX_REPLY_BYTES // 2:
                return

    def _set_reply(self, operation: _Operation, reply: HttpReply) -> None:
        self._reply_bytes += len(reply.body) - (len(operation.reply.body) if operation.reply else 0)
        operation.reply = reply

    def _begin_afresh(self) -> None:
        """Forget the requests without an id that were for the sandbox before the reset."""
        for each in tuple(self._known.values()):
            if each.done.is_set():
                self._heard(each)

    def _heard(self, operation: _Operation) -> None:
        """Forget a delivered operation without a request id: an equal request is a new one from now on."""
        if operation.is_blind and operation.key in self._known:
            self._forget(operation)
            with contextlib.suppress(InfraError):
                self._record.delivered(operation.key)

    def _all(self) -> Iterator[KnownOperation]:
        return (KnownOperation(each.key, each.digest, each.reply) for each in self._known.values())

    def _forget(self, operation: _Operation) -> None:
        del self._known[operation.key]
        self._reply_bytes -= len(operation.reply.body) if operation.reply else 0

    def _forget_old(self) -> None:
        before = self._now() - self._remember_s
        while self._known:
            oldest = next(iter(self._known.values()))
            if not oldest.done.is_set() or oldest.ended_at >= before:
                return
            self._forget(oldest)


def _outcome_unknown(message: str) -> HttpReply:
    return HttpError(409, failures.UNKNOWN_OUTCOME, message).reply()
