"""The DevTools protocol over the streams of a process in a sandbox: calls with answers, and events.

Each message is a JSON object that ends with a NUL byte, as Chromium's ``--remote-debugging-pipe`` has them.  No port
is open: nothing else in the sandbox can drive the browser.  A message above :data:`MESSAGE_BYTES`, or that cannot be
read, is dropped as it comes, and its caller's time runs out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from sandbox.errors import SandboxVanished

MESSAGE_BYTES = 32 << 20
ANSWER_S = 20.0
"""Maximum seconds of a call, unless it names others."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_UNREADABLE = (ValueError, RecursionError)
T = TypeVar("T")


class DevToolsCallError(Exception):
    """Chromium refused a call, in its own words, or gave another answer than it should."""


class DevToolsTimeoutError(Exception):
    """Chromium did not answer a call in time."""


class DevToolsEvent(msgspec.Struct, frozen=True):
    """One event of Chromium, or of one of its tabs."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    session: str = msgspec.field(default="", name="sessionId")
    """The tab's session; empty for the browser itself."""

    def read(self, kind: type[T]) -> T:
        """Return the parameters as a struct."""
        return msgspec.json.decode(self.params, type=kind)


def read_answer(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Return an answer of Chromium, or of a page, as a ``kind``.  Raises DevToolsCallError if it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise DevToolsCallError(f"the page gives an unexpected answer: {error}") from error


class _CallFailure(msgspec.Struct):
    message: str


class _Message(msgspec.Struct):
    id: int = 0
    method: str = ""
    result: msgspec.Raw = msgspec.Raw(b"{}")
    error: _CallFailure | None = None


class MessageSplitter:
    """Cuts a stream of bytes into its messages.  Pure."""

    def __init__(self, most_bytes: int = MESSAGE_BYTES) -> None:
        self._most, self._part, self._is_too_long = most_bytes, bytearray(), False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that ``data`` completes."""
        *ends, rest = data.split(b"\0")
        messages: list[bytes] = []
        for end in ends:
            self._add(end)
            if not self._is_too_long:
                messages.append(bytes(self._part))
            self._part, self._is_too_long = bytearray(), False
        self._add(rest)
        return messages

    def _add(self, data: bytes) -> None:
        self._is_too_long |= len(self._part) + len(data) > self._most
        if self._is_too_long:
            self._part.clear()
        else:
            self._part += data


class DevToolsLink(Protocol):
    """The process behind the protocol."""

    def type_soon(self, data: bytes) -> None: ...


class EventWaiter(Protocol):
    """The session of the process; see :meth:`sandbox.session.shell.SlotConnection.wait_for_event`."""

    async def wait_for_event(self, event: asyncio.Event, timeout_s: float) -> None: ...


class _Call:
    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.message: _Message | None = None


class DevTools:
    """Calls and events of one Chromium.  The session's reader feeds it; nothing of it runs by itself."""

    def __init__(self, waiter: EventWaiter, on_event: Callable[[DevToolsEvent], None]) -> None:
        self._waiter, self._on_event = waiter, on_event
        self._splitter = MessageSplitter()
        self._calls: dict[int, _Call] = {}
        self._last_id = 0
        self._link: DevToolsLink
        self._has_begun, self.ended = asyncio.Event(), asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Take output of the process; ``b""`` is its end."""
        if not data:
            self.ended.set()
            self._has_begun.set()
            for call in self._calls.values():
                call.ended.set()
        for message in self._splitter.feed(data):
            if self._has_begun.is_set():
                with suppress(*_UNREADABLE):  # what a page writes may cost a call, and never the stream
                    self._handle(_without_lone_surrogates(message))
            else:  # all that comes before the process is ready ends with this
                self._has_begun.set()

    async def begin(self, link: DevToolsLink, timeout_s: float) -> None:
        """Wait until the process takes messages.  Raises TimeoutError, SandboxVanished, SandboxLost,
        SandboxDestroyed."""
        self._link = link
        await self._waiter.wait_for_event(self._has_begun, timeout_s)
        self._check_alive()

    def send(self, method: str, session: str = "", /, **params: object) -> int:
        """Send a call whose answer nobody waits for; return its id."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        self._link.type_soon(msgspec.json.encode(message | ({"sessionId": session} if session else {})) + b"\0")
        return self._last_id

    async def call(
        self, kind: type[T], method: str, session: str = "", timeout_s: float = ANSWER_S, /, **params: object
    ) -> T:
        """Call a method and return its result.

        Raises DevToolsCallError, DevToolsTimeoutError, SandboxVanished if Chromium has ended, SandboxLost,
        SandboxDestroyed.
        """
        self._check_alive()
        call = _Call()
        number = self.send(method, session, **params)
        self._calls[number] = call
        try:
            await self._waiter.wait_for_event(call.ended, timeout_s)
        except TimeoutError:
            raise DevToolsTimeoutError(f"{method} was not answered within {timeout_s:g} s") from None
        finally:
            del self._calls[number]
        if call.message is None:
            self._check_alive()
            raise DevToolsTimeoutError(f"{method} was not answered")
        if call.message.error is not None:
            raise DevToolsCallError(call.message.error.message)
        return read_answer(call.message.result, kind)

    async def wait_for(self, event: asyncio.Event, timeout_s: float) -> bool:
        """Return whether an event is set within this time.  Raises SandboxVanished, SandboxLost, SandboxDestroyed."""
        try:
            await self._waiter.wait_for_event(event, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._check_alive()
        return True

    def _check_alive(self) -> None:
        if self.ended.is_set():
            raise SandboxVanished("the browser has ended by itself")

    def _handle(self, data: bytes) -> None:
        message = msgspec.json.decode(data, type=_Message)
        if message.method:
            self._on_event(msgspec.json.decode(data, type=DevToolsEvent))
        elif (call := self._calls.get(message.id)) is not None:
            call.message = message
            call.ended.set()


def _without_lone_surrogates(message: bytes) -> bytes:
    """Return JSON with a question mark for each half of a character, which a page may write and UTF-8 does not have."""
    if not _SURROGATE.search(message):
        return message
    return json.dumps(json.loads(message), ensure_ascii=False).encode(errors="replace")
