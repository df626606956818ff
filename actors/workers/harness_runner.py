"""Runs a worker's harnesses: one gateway for all of them, and a socket to it in each sandbox.

``async with HarnessRunner(settings, tokenizer, generate) as runner: trajectory = await runner.run_episode(…)``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from actors.engines.messages import StreamingGenerateFunction
from actors.engines.sampling import EpisodeSampling
from actors.gateway.server import Gateway
from actors.gateway.session import GatewaySession
from actors.rollout.grading import EpisodeContext
from actors.rollout.harness import (
    HarnessRun,
    harness_environment,
    make_reply_callback,
    run_harness_episode,
)
from actors.rollout.observer import EpisodeObserver
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.tokens.chat_format import Tokenizer
from protocol.trajectory import Trajectory
from sandbox.docker.network.container_sockets import listen_in_container
from sandbox.docker.network.proxy_address import PROXY_HOST
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task

_MODEL = "policy"
"""The model name that harnesses see."""


class OpenHarness(NamedTuple):
    """A harness that is ready to run, and its session."""

    run: HarnessRun
    session: GatewaySession


class HarnessRunner:
    """Runs harness episodes.  An async context manager."""

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

    async def run_episode(self, context: EpisodeContext, terminal: SandboxTerminal) -> Trajectory:
        """Run one episode in the terminal's sandbox.  Raises :class:`InfraError` if infrastructure failed."""
        with self.open_run(context.task, terminal, context.settings, context.sampling, context.observer) as harness:
            return await run_harness_episode(context, harness.run, harness.session)

    @contextmanager
    def open_run(
        self,
        task: Task,
        terminal: SandboxTerminal,
        settings: EpisodeSettings,
        sampling: EpisodeSampling,
        observer: EpisodeObserver,
    ) -> Generator[OpenHarness]:
        """Open a harness in the terminal's sandbox; its session is open within the block."""
        with self._gateway.open_session(settings, sampling, make_reply_callback(observer)) as session:
            access = self._open_gateway_access(terminal.session, session, task)
            run = HarnessRun(task, session, terminal, self._settings.harness, access, settings, observer)
            yield OpenHarness(run, session)

    @asynccontextmanager
    async def _open_gateway_access(
        self, sandbox: SandboxSession, session: GatewaySession, task: Task
    ) -> AsyncGenerator[Mapping[str, str]]:
        """Serve the gateway on the sandbox's own loopback; yields the environment of a harness there."""
        port = self._settings.harness_port
        listener = await listen_in_container(sandbox.engine, sandbox.container, port)
        async with self._gateway.listen_on(listener):
            yield harness_environment(
                f"http://{PROXY_HOST}:{port}", self._gateway.api_key(session), self._gateway.model, task
            )
