"""Small actor classes for the tests of the Ray seam; importable by name in an actor's process."""

import asyncio
import logging
import os
import threading

from actors.runtime.remote import Remote
from protocol.errors import InfraError


class Counter:
    def __init__(self, start: int) -> None:
        if start < 0:
            raise ValueError("start must not be negative")
        self.value = start
        self._changed = asyncio.Condition()
        self._waiting = self._cancelled = 0

    async def add(self, amount: int, *, twice: bool = False) -> int:
        async with self._changed:
            self.value += 2 * amount if twice else amount
            self._changed.notify_all()
        return self.value

    async def wait_for(self, value: int) -> int:
        async with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: self.value >= value)
            except asyncio.CancelledError:
                self._cancelled += 1
                self._changed.notify_all()
                raise
        return self.value

    async def someone_waits(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting > 0)

    async def someone_was_cancelled(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._cancelled > 0)

    async def fail(self, message: str) -> None:
        raise InfraError(message)

    async def make(self, size: int) -> bytes:
        return bytes(size)

    def variable(self, name: str) -> str:
        return os.environ[name]

    async def warn(self, text: str) -> int:
        """Log a warning as a library does, and return the process id."""
        logging.getLogger("a.library").warning(text)
        return os.getpid()

    def pid(self) -> int:
        return os.getpid()


class Forwarder:
    def __init__(self, counter: Remote[Counter]) -> None:
        self._counter = counter

    def measure(self, blob: bytes) -> int:
        return len(blob)

    async def add_through(self, amount: int) -> int:
        return await self._counter.call(Counter.add, amount)

    async def wait_through(self, value: int) -> int:
        return await self._counter.call(Counter.wait_for, value)

    async def hold_up(self) -> None:
        """No other coroutine goes on."""
        await self._counter.call(Counter.add, 1)
        threading.Event().wait(600)


class Blocking:
    def __init__(self) -> None:
        self._free = threading.Event()

    def wait(self) -> int:
        """The thread that has waited."""
        self._free.wait()
        return threading.get_ident()

    def let_go(self) -> int:
        self._free.set()
        return threading.get_ident()
