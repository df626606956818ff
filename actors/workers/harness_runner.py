"""A worker's harnesses: one gateway for all of them, and a door to it in the sandbox of each.

``async with Harnesses(settings, tokenizer, generate) as harnesses: trajectory = await harnesses.run(…)``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

from actors.engines.messages import StreamingGenerateFunction
from actors.gateway.server import Gateway
from actors.gateway.session import GatewaySession
from actors.rollout.episode import EpisodeObserver, EpisodeSettings
from actors.rollout.harness import (
    HarnessEpisode,
    HarnessRun,
    HarnessSettings,
    harness_environment,
    make_reply_callback,
    make_session_settings,
)
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.stages import NO_DEADLINES, StageDeadlines
from actors.tokens.chat_format import Tokenizer
from protocol.trajectory import RolloutRequest, Trajectory
from sandbox.docker.container_sockets import listen_in_container
from sandbox.docker.network_namespace import PROXY_HOST
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task

_MODEL = "policy"
"""Under which harnesses see it."""


class HarnessRunner:
    def __init__(self, settings: HarnessSettings, tokenizer: Tokenizer, generate: StreamingGenerateFunction) -> None:
        self._settings = settings
        self._gateway = Gateway(tokenizer, generate, model=_MODEL)

    async def __aenter__(self) -> Self:
        await self._gateway.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._gateway.__aexit__(kind, error, trace)

    async def run_episode(
        self,
        request: RolloutRequest,
        task: Task,
        terminal: SandboxTerminal,
        settings: EpisodeSettings,
        observer: EpisodeObserver,
        *,
        deadlines: StageDeadlines = NO_DEADLINES,
    ) -> Trajectory:
        """One episode, in the terminal's sandbox.  Raises :class:`InfraError` when infrastructure failed."""
        name = request.attempt_id
        with self._gateway.open_session(
            name, make_session_settings(settings, request), make_reply_callback(observer)
        ) as session:
            reach = self._open_gateway_access(terminal.session, session, task)
            command = self._settings.command
            return await HarnessEpisode(
                request, task, session, terminal, command, reach, settings, observer, deadlines
            ).run()

    @contextmanager
    def open_run(
        self,
        request: RolloutRequest,
        task: Task,
        terminal: SandboxTerminal,
        settings: EpisodeSettings,
        observer: EpisodeObserver,
    ) -> Generator[tuple[HarnessRun, GatewaySession]]:
        """One that somebody else grades: at work in the terminal's sandbox, and its session, which is open in the
        block."""
        name = request.attempt_id
        with self._gateway.open_session(
            name, make_session_settings(settings, request), make_reply_callback(observer)
        ) as session:
            reach = self._open_gateway_access(terminal.session, session, task)
            yield HarnessRun(task, session, terminal, self._settings.command, reach, settings, observer), session

    @asynccontextmanager
    async def _open_gateway_access(
        self, sandbox: SandboxSession, session: GatewaySession, task: Task
    ) -> AsyncGenerator[Mapping[str, str]]:
        """The gateway answers on the sandbox's own loopback; gives what a harness there is told of it."""
        port = self._settings.port
        door = await listen_in_container(sandbox.engine, sandbox.container, port)
        async with self._gateway.listen_on(door):
            yield harness_environment(
                f"http://{PROXY_HOST}:{port}", self._gateway.api_key(session), self._gateway.model, task
            )
