"""Finds what login shells of an image set, once for each image, in a container that no agent ever has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.egress_proxy.settings import is_proxy_variable
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError
from sandbox.networking.networks import NO_NETWORK
from sandbox.pool.warm_sandboxes import ContainerKind
from sandbox.session.login_shell import (
    LIMIT_S,
    NOTHING_SET,
    LoginVariables,
    given_to_login,
    login_command,
    parse_login,
)
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.session.users import ContainerUser
from sandbox.tasks.task import Task

_LIFETIME_S = 300.0
_AT_ONCE, _KEPT = 8, 1000
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Image:
    finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    found: LoginVariables | None = None


class LoginShells:
    """The variables of the images of one pool."""

    def __init__(self, engine: DockerEngine, spec_of: Callable[[ContainerKind, float], ContainerSpec]) -> None:
        self._engine, self._spec_of = engine, spec_of
        self._images: dict[object, _Image] = {}
        self._starts = asyncio.Semaphore(_AT_ONCE)

    async def variables(self, task: Task, kind: ContainerKind) -> LoginVariables:
        """Return what login shells of a task's users set in containers of ``kind``; nothing if they set too much or do
        not end.

        Raises SandboxStartError, DockerEngineError, TaskFault.
        """
        if not task.login_shell:
            return NOTHING_SET
        env = tuple((name, value) for name, value in kind.env if not is_proxy_variable(name))
        alone = replace(kind, env=env, network=NO_NETWORK, volumes=(), aliases=())
        image = self._images.setdefault((alone, task.agent_user, task.tests_user), _Image())
        while len(self._images) > _KEPT:
            del self._images[next(iter(self._images))]
        async with image.finding:
            if image.found is None:
                async with self._starts:
                    image.found = await self._find(task, alone)
        return image.found

    async def _find(self, task: Task, kind: ContainerKind) -> LoginVariables:
        given = {**dict(kind.image_config.env), **dict(kind.env)}
        found = dict[ContainerUser, dict[str, str]]()
        try:
            async with self._container(kind) as session:
                await session.find_users(task)
                for user in dict.fromkeys((session.agent_user, session.tests_user)):
                    await session.set_agent_user(user)
                    before = given_to_login(user, given)
                    printed = await session.run(login_command(before), 2 * LIMIT_S)
                    variables = parse_login(printed.output, before)
                    if variables is None:
                        _log.warning("task %s: a login shell (%s) did not show its variables", task.id, before["SHELL"])
                    found[user] = {k: v for k, v in (variables or {}).items() if not is_proxy_variable(k)}
                return LoginVariables.of(found[session.agent_user], found[session.tests_user])
        except (OSError, SandboxDestroyed, SandboxLost) as error:
            raise SandboxStartError(f"the variables of a login shell could not be found: {error}") from error

    @asynccontextmanager
    async def _container(self, kind: ContainerKind) -> AsyncGenerator[SandboxSession]:
        limits = SessionLimits(_LIFETIME_S, _LIFETIME_S)
        session = await SandboxSession.start(self._engine, self._spec_of(kind, _LIFETIME_S), kind.workdir, limits)
        try:
            yield session
        finally:
            await asyncio.shield(self._remove(session))

    async def _remove(self, session: SandboxSession) -> None:
        """Remove the container. If that fails, it ends at its deadline."""
        with suppress(DockerEngineError):
            await session.close()
            await self._engine.remove(session.container)
