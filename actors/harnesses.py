"""A worker's harnesses: one gateway for all of them, and a door to it in the sandbox of each.

``async with Harnesses(settings, tokenizer, generate) as harnesses: trajectory = await harnesses.run(…)``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

from actors.agents.chat import Tokenizer
from actors.engines.messages import GenerateWatched
from actors.episode import EpisodeSettings, Observer
from actors.gateway.server import Gateway
from actors.gateway.session import Session
from actors.harness import HarnessActing, HarnessEpisode, HarnessSettings, environment, on_reply, session_settings
from actors.stages import NO_DEADLINES, Deadlines
from actors.terminal import SandboxTerminal
from actors.tickets import name_of
from protocol.trajectory import Ticket, Trajectory
from sandbox.doorway import listening_inside
from sandbox.gate.doors import HOST
from sandbox.session import SandboxSession
from sandbox.tasks.task import Task

_MODEL = "policy"
"""Under which harnesses see it."""


class Harnesses:
    def __init__(self, settings: HarnessSettings, tokenizer: Tokenizer, generate: GenerateWatched) -> None:
        self._settings = settings
        self._gateway = Gateway(tokenizer, generate, model=_MODEL)

    async def __aenter__(self) -> Self:
        await self._gateway.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._gateway.__aexit__(kind, error, trace)

    async def run(
        self,
        ticket: Ticket,
        task: Task,
        terminal: SandboxTerminal,
        settings: EpisodeSettings,
        observer: Observer,
        *,
        deadlines: Deadlines = NO_DEADLINES,
    ) -> Trajectory:
        """One episode, in the terminal's sandbox.  Raises :class:`InfraError` when infrastructure failed."""
        name = name_of(ticket)
        with self._gateway.session(name, session_settings(settings, ticket), on_reply(observer)) as session:
            reach = self._reach(terminal.session, session, task)
            command = self._settings.command
            return await HarnessEpisode(
                ticket, task, session, terminal, command, reach, settings, observer, deadlines
            ).run()

    @contextmanager
    def acting(
        self, ticket: Ticket, task: Task, terminal: SandboxTerminal, settings: EpisodeSettings, observer: Observer
    ) -> Generator[tuple[HarnessActing, Session]]:
        """One that somebody else grades: at work in the terminal's sandbox, and its session, which is open in the
        block."""
        name = name_of(ticket)
        with self._gateway.session(name, session_settings(settings, ticket), on_reply(observer)) as session:
            reach = self._reach(terminal.session, session, task)
            yield HarnessActing(task, session, terminal, self._settings.command, reach, settings, observer), session

    @asynccontextmanager
    async def _reach(self, sandbox: SandboxSession, session: Session, task: Task) -> AsyncGenerator[Mapping[str, str]]:
        """The gateway answers on the sandbox's own loopback; gives what a harness there is told of it."""
        port = self._settings.port
        door = await listening_inside(sandbox.engine, sandbox.container, port)
        async with self._gateway.door(door):
            yield environment(f"http://{HOST}:{port}", self._gateway.key(session), self._gateway.model, task)
