"""Runs a worker's harnesses: one gateway for all of them, and a socket to it in each sandbox.

``async with HarnessRunner(settings, tokenizer, generate, calls) as runner: trajectory = await runner.run_episode(…)``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from actors.agents.call_format import CallFormat
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
from actors.tokens.chat_template import Tokenizer
from protocol.trajectory import Trajectory
from sandbox.docker.network.proxy_address import PROXY_HOST
from sandbox.providers.pool_sandbox import AgentSandbox
from sandbox.tasks.task import Task

_MODEL = "policy"
"""The model name that harnesses see."""


class OpenHarness(NamedTuple):
    """A harness that is ready to run, and its session."""

    run: HarnessRun
    session: GatewaySession


class HarnessRunner:
    """Runs harness episodes.  An async context manager."""

    def __init__(
        self,
        settings: HarnessSettings,
        tokenizer: Tokenizer,
        generate: StreamingGenerateFunction,
        calls: CallFormat,
    ) -> None:
        self._settings = settings
        self._gateway = Gateway(tokenizer, generate, model=_MODEL, calls=calls)

    async def __aenter__(self) -> Self:
        await self._gateway.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._gateway.__aexit__(kind, error, trace)

    async def run_episode(self, context: EpisodeContext, terminal: SandboxTerminal) -> Trajectory:
        """Run one episode in the terminal's sandbox.  Raises :class:`InfraError` if infrastructure failed."""
        with self.open_run(terminal, context.settings, context.sampling, context.observer) as harness:
            return await run_harness_episode(context, harness.run, harness.session)

    @contextmanager
    def open_run(
        self,
        terminal: SandboxTerminal,
        settings: EpisodeSettings,
        sampling: EpisodeSampling,
        observer: EpisodeObserver,
    ) -> Generator[OpenHarness]:
        """Open a harness in the terminal's sandbox; its session is open within the block."""
        on_reply, untrained = make_reply_callback(observer), self._settings.untrained_roles
        with self._gateway.open_session(settings, sampling, on_reply, untrained=untrained) as session:
            open_gateway = partial(self._open_gateway_access, terminal.agent_sandbox, session, settings)
            run = HarnessRun(session, terminal, self._settings.harness, open_gateway, settings, observer)
            yield OpenHarness(run, session)

    @asynccontextmanager
    async def _open_gateway_access(
        self, sandbox: AgentSandbox, session: GatewaySession, settings: EpisodeSettings, task: Task
    ) -> AsyncGenerator[Mapping[str, str]]:
        """Serve the gateway on the sandbox's own loopback; yields the environment of a harness there."""
        port, gateway = self._settings.harness_port, self._gateway
        async with sandbox.listen(port) as listener, gateway.listen_on(listener, session.name):
            url = f"http://{PROXY_HOST}:{port}"
            yield harness_environment(url, gateway.api_key(session), gateway.model, task, settings)
