"""Runs each operation of a lease exactly once, whatever its client does.

An operation belongs to the server: a client that disconnects does not end it. With a request id, a repeated request
gets the first one's reply: while it is running, and even after the server was killed (from the journal; if its outcome
is unknown, it is never done a second time). Without a request id, a request that equals an operation whose reply has
not been delivered gets that operation's reply, because a client's blind retry looks like that, even if the server has
not noticed that the first connection is dead. A reply that was sent and then lost cannot be distinguished from one that
was received; clients that need this send a request id. So do clients that deliberately repeat a request that failed but
may have been done: without an id such a request gets the failure again. It is done again after a reset, which may
itself be repeated at any time, or when its reply is no longer remembered.

Operations of one lease run one after the other. The memory is bounded: replies by their bytes (a repeated request whose
reply was dropped gets an error and is not done again), everything else by time.
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
"""Maximum bytes of one lease's replies that are kept for repeated requests."""
RESET = "reset"
"""The operation that starts a new sandbox each time."""


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
    """Empty if the request has none."""
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
        """True if it succeeded or did nothing, so that a client that got the reply and sends the request again wants a
        new operation."""
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
        """``spawn`` starts work that outlives its request; if that work is cancelled, the request gets an error."""
        self._spawn, self._record, self._remember_s, self._now = spawn, record, remember_s, now
        self._known: dict[str, _Operation] = {}
        """Operations in the order in which they started, which is also the order in which they end."""
        self._reply_bytes = 0
        self._count = 0
        self._running = asyncio.Lock()

    def restore(self, known: KnownOperation) -> None:
        """Take over an operation of an earlier server; without a reply, its outcome is unknown."""
        operation = _Operation(known.key, known.digest, ended_at=self._now())
        unknown = "the server was restarted while this was running; it is not done a second time"
        self._keep(operation, known.reply or _outcome_unknown(unknown))
        operation.done.set()
        self._known[known.key] = operation
        if operation.is_blind:
            self._count = max(self._count, int(known.key.partition("#")[2]))

    async def run_once(self, request: RequestedOperation, do: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
        """Run the operation, or join it, or return its reply again.

        Raises HttpError for a request id that was used for another request.
        """
        self._forget_old()
        operation = self._find(request)
        if operation is None:
            self._count += 1
            key = f"{request.what}/{request.request_id}" if request.request_id else f"{request.what}#{self._count}"
            operation = self._known[key] = _Operation(key, request.digest)
            self._spawn(self._perform(operation, do))
        delivered = await self._waited(operation, request.client)
        if delivered and operation.is_settled:
            self._delivered(operation)
        return (
            operation.reply
            or HttpError(503, failures.DRAINING, "the server was stopped while this was running").reply()
        )

    async def _waited(self, operation: _Operation, client: RequestingClient) -> bool:
        """Wait for the operation's end. Returns whether the client is still connected then."""
        connected = True

        async def watch() -> None:
            nonlocal connected
            await client.wait_until_gone()
            connected = False

        operation.waiting += 1
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch())
                await operation.done.wait()
                await asyncio.sleep(0)  # notice a connection that ended together with the operation
                watching.cancel()
        finally:
            operation.waiting -= 1
        return connected

    def _find(self, request: RequestedOperation) -> _Operation | None:
        if request.request_id:
            operation = self._known.get(f"{request.what}/{request.request_id}")
            if operation is not None and operation.digest not in ("", request.digest):
                raise HttpError(
                    409, failures.REUSED_ID, f"request id {request.request_id} was used for another request"
                )
            return operation
        blind = f"{request.what}#"
        return next((e for e in self._known.values() if e.key.startswith(blind) and e.digest == request.digest), None)

    async def _perform(self, operation: _Operation, do: Callable[[], Awaitable[HttpReply]]) -> None:
        try:
            async with self._running:
                reply = await self._attempt(operation, do)
                self._keep(operation, reply)
                if operation.is_reset and reply.status == 200:
                    self._begin_afresh()
                with contextlib.suppress(InfraError):  # not recorded: after a restart its outcome is unknown
                    self._record.end(operation.key, reply)
                    if self._record.is_long:
                        self._record.rewrite(self._list_known())
        finally:
            operation.ended_at = self._now()
            operation.done.set()

    async def _attempt(self, operation: _Operation, do: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
        try:
            self._record.begin(operation.key, operation.digest)
            return await do()
        except Exception as error:  # noqa: BLE001  the boundary: every failure becomes a reply, and a defect is logged
            failure = failures.to_http_error(error)
            if failure.status == 500:
                _log.exception("an operation failed by a defect")
            return failure.reply()

    def _keep(self, operation: _Operation, reply: HttpReply) -> None:
        """Keep a reply; when all replies are too large, drop the oldest ones without waiting requests."""
        self._set_reply(operation, reply)
        if self._reply_bytes <= MAX_REPLY_BYTES:
            return
        for each in self._known.values():
            if each is not operation and each.done.is_set() and not each.waiting:
                self._set_reply(each, _outcome_unknown("it was done, but its reply is no longer kept"))
            if self._reply_bytes <= MAX_REPLY_BYTES // 2:
                return

    def _set_reply(self, operation: _Operation, reply: HttpReply) -> None:
        self._reply_bytes += len(reply.body) - (len(operation.reply.body) if operation.reply else 0)
        operation.reply = reply

    def _begin_afresh(self) -> None:
        """Forget the requests without an id that were for the sandbox before the reset."""
        for each in tuple(self._known.values()):
            if each.done.is_set():
                self._delivered(each)

    def _delivered(self, operation: _Operation) -> None:
        """Forget a delivered operation without a request id: from now on an equal request is a new one."""
        if operation.is_blind and operation.key in self._known:
            self._forget(operation)
            with contextlib.suppress(InfraError):
                self._record.delivered(operation.key)

    def _list_known(self) -> Iterator[KnownOperation]:
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
