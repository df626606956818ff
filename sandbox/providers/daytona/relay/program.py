"""The relay's program in one sandbox: its upload, its start with the first exchange, its exchanges and its end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import secrets
from pathlib import Path

from protocol.errors import InfraError
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.providers.daytona.files import write_files
from sandbox.providers.daytona.handle import LONGSHORE_FOLDER, DaytonaHandle
from sandbox.providers.daytona.relay.build import build_relay
from sandbox.providers.daytona.relay.frames import RelayProtocolError, RelayReply, StreamPart

_PATH = f"{LONGSHORE_FOLDER}/relay"
_PROGRAM_MODE = 0o755
_STOP_S = 10.0


class RelayProgram:
    """The program that listens at a port of one sandbox."""

    def __init__(self, machine: DaytonaHandle, port: int) -> None:
        self._machine, self._port, self._name = machine, port, secrets.token_hex(8)

    async def start(self, cache: Path) -> RelayReply:
        """Upload and start the program, which is compiled in ``cache`` if it is absent.

        Raises SandboxLost, SandboxStartError if it cannot listen, UserError if it cannot be compiled.
        """
        program = await asyncio.to_thread(_read_program, cache)
        try:
            await write_files(self._machine, {_PATH: program}, _PROGRAM_MODE)
        except OSError as error:
            raise SandboxStartError(f"no relay can be written into sandbox {self._machine.id}: {error}") from error
        try:
            code, reply = await self._call(0, 0, 0, 0.0, StreamPart(0, b""))
        except RelayProtocolError as error:
            raise SandboxStartError(f"the relay of sandbox {self._machine.id} gives {error}") from error
        if reply is not None:
            return reply
        if code == errno.EADDRINUSE:
            raise SandboxStartError(
                f"a program in sandbox {self._machine.id} listens on port {self._port}, where the harness would reach "
                "the policy: set agent.harness_port to another port"
            )
        raise SandboxStartError(
            f"the relay of sandbox {self._machine.id} does not start: code {code} (it is a program of the worker's "
            "architecture)"
        )

    async def exchange(
        self, incarnation: int, received: int, most_bytes: int, wait_s: float, part: StreamPart
    ) -> RelayReply | None:
        """Hand over a part of this end's stream, and return up to ``most_bytes`` of the other end's from byte
        ``received`` on, or none after ``wait_s``; 0 bytes are returned at once.

        None if the program was killed; the next call starts it.  Raises SandboxLost, after which each call of the
        sandbox does, RelayProtocolError.
        """
        try:
            _, reply = await self._call(incarnation, received, most_bytes, wait_s, part)
        except SandboxLost as error:
            self._machine.lost = self._machine.lost or error
            raise
        return reply

    async def stop(self) -> None:
        """End the program and its connections, if the sandbox still answers."""
        with contextlib.suppress(InfraError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self._machine.run_program(_PATH, "stop", self._name)

    async def _call(
        self, incarnation: int, received: int, most_bytes: int, wait_s: float, part: StreamPart
    ) -> tuple[int, RelayReply | None]:
        numbers = (self._port, incarnation, received, most_bytes, round(wait_s * 1000), part.offset)
        data = (base64.b64encode(part.data).decode(),) if part.data else ()
        arguments = ("exchange", self._name, *map(str, numbers), *data)
        done = await self._machine.run_program(_PATH, *arguments, wait_s=wait_s)
        return done.code, RelayReply.parse(done.words) if done.words else None


def _read_program(cache: Path) -> bytes:
    return build_relay(cache).read_bytes()
