"""Each operation of a lease is done once, whatever its client does.

An operation belongs to the server: a client that goes away does not end it.  With a request id, a repeated request gets
the first one's reply, also while that still runs, and also after the server was killed (the journal has it, or the
outcome is unknown; it is never done a second time).  Without one, a request that equals an operation whose client had
gone before it could be answered takes that one's reply: that is what a client's blind retry looks like.
Operations of one lease run one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from protocol.errors import InfraError
from sandbox.server import failures
from sandbox.server.messages import Reply, WireError

_log = logging.getLogger(__name__)


class Client(Protocol):
    """The connection that asked."""

    async def gone(self) -> None:
        """Return when the client has gone; else never."""
        ...


class Asked(NamedTuple):
    """A request for an operation."""

    what: str
    """Name of the operation."""
    digest: str
    """Of all that was asked: equal for a request and its repetition."""
    request_id: str
    """Empty for none."""
    client: Client


class Record(Protocol):
    """What outlives the server's process."""

    def begin(self, key: str) -> None:
        """Raises InfraError when it cannot be written."""
        ...

    def end(self, key: str, reply: Reply | None) -> None:
        """``reply`` is None where nobody can ask for it again.  Raises InfraError."""
        ...


@dataclass(slots=True)
class _Operation:
    key: str
    """``exec_tool/<request id>``, or with ``#<number>`` without one."""
    digest: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    reply: Reply | None = None
    unanswered: bool = False
    """Its client went away before the reply."""
    ended_at: float = 0.0


class Operations:
    """Of one lease."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[None, None, None]], object],
        record: Record,
        remember_s: float,
        now: Callable[[], float],
    ) -> None:
        """``spawn`` starts what goes on when its request ends; when that is cancelled, its request is told so."""
        self._spawn, self._record, self._remember_s, self._now = spawn, record, remember_s, now
        self._known: dict[str, _Operation] = {}
        self._count = 0
        self._turn = asyncio.Lock()

    def restore(self, key: str, reply: Reply | None) -> None:
        """An operation of an earlier server; without a reply, nobody knows whether it was done."""
        operation = _Operation(key, "", ended_at=self._now())
        operation.reply = (
            reply
            or WireError(
                409, failures.UNKNOWN_OUTCOME, "the server was restarted while this ran; it is not done a second time"
            ).reply()
        )
        operation.done.set()
        self._known[key] = operation

    async def once(self, asked: Asked, do: Callable[[], Awaitable[Reply]]) -> Reply:
        """Do it, or join it, or give its reply again.  Raises WireError for a request id of another request."""
        self._forget()
        operation = self._find(asked)
        if operation is None:
            self._count += 1
            operation = _Operation(f"{asked.what}/{asked.request_id or f'#{self._count}'}", asked.digest)
            self._known[operation.key] = operation
            self._spawn(self._perform(operation, do, keep=bool(asked.request_id)))
        operation.unanswered = False
        async with asyncio.TaskGroup() as waiting:
            watch = waiting.create_task(self._watch(operation, asked.client))
            await operation.done.wait()
            watch.cancel()
        if not asked.request_id and not operation.unanswered:
            self._known.pop(operation.key, None)
        return operation.reply or WireError(503, failures.DRAINING, "the server was stopped under this").reply()

    def _find(self, asked: Asked) -> _Operation | None:
        if asked.request_id:
            operation = self._known.get(f"{asked.what}/{asked.request_id}")
            if operation is not None and operation.digest not in ("", asked.digest):
                raise WireError(409, failures.REUSED_ID, f"request id {asked.request_id} was used for another request")
            return operation
        blind = f"{asked.what}/#"
        for each in self._known.values():
            if each.unanswered and each.digest == asked.digest and each.key.startswith(blind):
                return each
        return None

    async def _perform(self, operation: _Operation, do: Callable[[], Awaitable[Reply]], *, keep: bool) -> None:
        try:
            async with self._turn:
                operation.reply = await self._attempt(operation.key, do)
                with contextlib.suppress(InfraError):  # not written: after a restart its outcome is unknown
                    self._record.end(operation.key, operation.reply if keep else None)
        finally:
            operation.ended_at = self._now()
            operation.done.set()

    async def _attempt(self, key: str, do: Callable[[], Awaitable[Reply]]) -> Reply:
        try:
            self._record.begin(key)
            return await do()
        except Exception as error:  # noqa: BLE001  the boundary: every failure is a reply, and a defect is logged
            failure = failures.describe(error)
            if failure.status == 500:
                _log.exception("an operation failed by a defect")
            return failure.reply()

    async def _watch(self, operation: _Operation, client: Client) -> None:
        await client.gone()
        operation.unanswered = not operation.done.is_set()

    def _forget(self) -> None:
        old = self._now() - self._remember_s
        for key, operation in tuple(self._known.items()):
            if operation.done.is_set() and operation.ended_at < old:
                del self._known[key]
