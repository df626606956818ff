"""Each operation of a lease is done once, whatever its client does.

An operation belongs to the server: a client that goes away does not end it.  With a request id, a repeated request gets
the first one's reply, also while that still runs, and also after the server was killed (the journal has it, or the
outcome is unknown; it is never done a second time).  Without one, a request that equals an operation whose reply nobody
has heard yet takes that one's reply: that is what a client's blind retry looks like, whether or not the server has
noticed that the first connection is dead.  A reply that was sent and then lost on its way cannot be told from one that
was heard; who needs that too gives a request id.  So does who repeats on purpose what may have been done, and failed:
without an id such a request takes the failure, heard or not, because clients repeat what fails by themselves.  It is
done anew after a reset, which may itself be repeated at any time, or when its reply is no longer remembered.
Operations of one lease run one after the other.  What is kept of them is bounded: replies by their bytes (a request
whose reply is gone is told so, and not done again), all else by time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from protocol.errors import InfraError
from sandbox.http import failures
from sandbox.http.messages import HttpError, HttpReply

_log = logging.getLogger(__name__)
MAX_REPLY_BYTES = 1 << 20
"""Of the replies of one lease that are kept to be given again."""
RESET = "reset"
"""The operation that makes all afresh, however often it is done."""


class RequestingClient(Protocol):
    """The connection that asked."""

    async def wait_until_gone(self) -> None:
        """Return when the client has gone; else never."""
        ...


class RequestedOperation(NamedTuple):
    """A request for an operation."""

    what: str
    """Name of the operation."""
    digest: str
    """Of all that was asked: equal for a request and its repetition."""
    request_id: str
    """Empty for none."""
    client: RequestingClient


class KnownOperation(NamedTuple):
    """An operation that may be asked for again."""

    key: str
    """``exec_tool/<request id>``, or ``exec_tool#<number>`` without one."""
    digest: str
    reply: HttpReply | None
    """None before its end."""


class OperationRecord(Protocol):
    """What outlives the server's process."""

    @property
    def is_long(self) -> bool:
        """It is worth rewriting."""
        ...

    def begin(self, key: str, digest: str) -> None:
        """Raises InfraError when it cannot be written."""
        ...

    def end(self, key: str, reply: HttpReply) -> None:
        """Raises InfraError."""
        ...

    def delivered(self, key: str) -> None:
        """Nobody will ask for it again.  Raises InfraError."""
        ...

    def rewrite(self, known: Iterable[KnownOperation]) -> None:
        """Of all operations, these alone.  Raises InfraError."""
        ...


@dataclass(slots=True)
class _Operation:
    key: str
    digest: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    reply: HttpReply | None = None
    waiting: int = 0
    """Requests that wait for the reply."""
    ended_at: float = 0.0

    @property
    def is_blind(self) -> bool:
        return "/" not in self.key

    @property
    def is_reset(self) -> bool:
        return self.key.startswith((f"{RESET}/", f"{RESET}#"))

    @property
    def is_settled(self) -> bool:
        """Its end is a success, or leaves nothing done: whoever has heard of it and asks again means another."""
        if self.is_reset or self.reply is None:
            return self.is_reset
        return self.reply.status == 200 or self.reply.value()["code"] not in failures.UNCERTAIN_CODES


class IdempotentOperations:
    """Of one lease."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[None, None, None]], object],
        record: OperationRecord,
        remember_s: float,
        now: Callable[[], float],
    ) -> None:
        """``spawn`` starts what goes on when its request ends; when that is cancelled, its request is told so."""
        self._spawn, self._record, self._remember_s, self._now = spawn, record, remember_s, now
        self._known: dict[str, _Operation] = {}
        """In their order, which is the order in which they end."""
        self._reply_bytes = 0
        self._count = 0
        self._turn = asyncio.Lock()

    def restore(self, known: KnownOperation) -> None:
        """An operation of an earlier server; without a reply, nobody knows whether it was done."""
        operation = _Operation(known.key, known.digest, ended_at=self._now())
        unknown = "the server was restarted while this ran; it is not done a second time"
        self._keep(operation, known.reply or _outcome_unknown(unknown))
        operation.done.set()
        self._known[known.key] = operation
        if operation.is_blind:
            self._count = max(self._count, int(known.key.partition("#")[2]))

    async def run_once(self, asked: RequestedOperation, do: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
        """Do it, or join it, or give its reply again.  Raises WireError for a request id of another request."""
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
        """Until its end.  Whether the client is there to hear of it, for all that its connection has told by then."""
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
        """With its reply; the oldest that nobody waits for lose theirs where all of them are too much."""
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
        """What was asked without a request id was of the sandbox before."""
        for each in tuple(self._known.values()):
            if each.done.is_set():
                self._heard(each)

    def _heard(self, operation: _Operation) -> None:
        """Without a request id, a request that equals it is another one from here on."""
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
