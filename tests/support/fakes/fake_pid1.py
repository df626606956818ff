"""A container without a daemon: a session whose frames are answered as PID 1 answers them, for tests of who waits for
which answer.  The commands of its shells and its grade child end when the test says so."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.init_messages import (
    ChildExit,
    DeathCause,
    FileData,
    InitAck,
    InitMessage,
    ProcessDied,
)
from sandbox.session.sandbox_session import SandboxSession


class FakePid1:
    """``heard`` is every frame in order: its type, and the path of a file or the number of a slot."""

    def __init__(self) -> None:
        self.received_frames: list[tuple[str, object]] = []
        self.session = SandboxSession(_FakeDaemon(), "c" * 64, b"")
        self.session.stream = self
        self.hello_received = asyncio.Event()
        self.mount_errno = 0
        """An errno: private folders cannot be made."""
        self.child_errno = 0
        """An errno: no grade child can be started."""
        self.grade_started, self.grade_request = asyncio.Event(), 0
        """A grade child was started; its request, 0 when it is dead."""
        self.running: dict[int, int] = {}
        """Slot → request of its command."""

    # ---- the stream's side

    def send(self, frame: bytes) -> None:
        kind, request, rest = chr(frame[0]), init_requests.request_id_of(frame), frame[13:]
        asyncio.get_running_loop().call_soon(self._handle, kind, request, rest)

    def close(self) -> None: ...

    def forget_sent(self) -> None: ...

    # ---- PID 1's side

    def deliver(self, message: InitMessage) -> None:
        self.session.on_message(message)

    def _handle(self, kind: str, request: int, rest: bytes) -> None:
        slot = int.from_bytes(rest[:2], "little")
        self.received_frames.append((kind, _path(kind, rest) or slot))
        match kind:
            case "F":
                self.deliver(FileData(request, errno.ENOENT, 0, b""))
                return
            case "G" if b"chown 0:0 /dev" in rest or b"\0links\0" in rest:  # sandbox.grading: all is as it was
                self.deliver(ChildExit(request, 0, signalled=False))
                return
            case "G":
                self._start_child(request)
                return
            case "R":
                self.running[slot] = request
                return
            case "M" if rest and self.mount_errno:
                self.deliver(InitAck(request, self.mount_errno, 0))
                return
            case "I" | "K" if self.grade_request and (kind == "K" or slot == wire.CHILD_SLOT):
                self.end_grade(137, signalled=True)
            case "I" if command := self.running.pop(slot, 0):
                self.deliver(ProcessDied(slot, command, 137, 0, DeathCause.INTERRUPTED))
            case _:
                pass
        self.deliver(InitAck(request, 0, 0))

    def _start_child(self, request: int) -> None:
        if self.child_errno:
            self.deliver(InitAck(request, self.child_errno, 0))
            return
        self.grade_request = request
        self.grade_started.set()

    def end_grade(self, code: int = 0, *, signalled: bool = False) -> None:
        request, self.grade_request = self.grade_request, 0
        self.deliver(ChildExit(request, code, signalled))


class _FakeDaemon:
    """A Docker daemon that shows nothing but PID 1."""

    @property
    def docker(self) -> Any:
        return SimpleNamespace(containers=SimpleNamespace(container=lambda _: SimpleNamespace(top=self._top)))

    async def _top(self) -> Any:
        return {"Titles": ["UID", "PID"], "Processes": [["root", "4711"]]}

    async def ending_cause(self, *_: object) -> Any:
        raise AssertionError("nobody is to ask why a container is gone that is there")


def _path(kind: str, rest: bytes) -> str:
    """Return the path of a file that is written or read; empty for other frames."""
    match kind:
        case "W":
            return rest[7 : 7 + int.from_bytes(rest[5:7], "little")].decode()
        case "F":
            return rest[13:].decode()
        case _:
            return ""
