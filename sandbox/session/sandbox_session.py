"""One sandbox from its container's creation to its end, with its shells, terminals and files.

A session takes three calls to the Docker daemon: create, attach, start.  Closing asks PID 1 to exit, and the daemon
removes the container; where containers outlive their daemon (live-restore), the session removes its own. Everything
else goes over PID 1's attach stream. PID 1 exits by itself at its deadline; ``extend`` moves the deadline, up to
the session's maximum.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

from protocol.errors import InfraError
from protocol.processes.cancellation import call_with_undo
from sandbox.docker.container_spec import ContainerSpec, ImageConfig
from sandbox.docker.engine import DockerEngine
from sandbox.docker.files.loop_disk import mount_loop_disk
from sandbox.docker.files.read_only_folders import make_read_only
from sandbox.docker.files.user_files import check_user_files
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError, TaskFault
from sandbox.session import files
from sandbox.session.init_connection import init_requests
from sandbox.session.init_connection.connection import InitConnection
from sandbox.session.init_connection.init_command import init_command, init_key
from sandbox.session.init_connection.init_messages import SlotMessage
from sandbox.session.init_connection.init_requests import FileFlag, Spool
from sandbox.session.login_shell import NOTHING_SET
from sandbox.session.named_session import NamedSession
from sandbox.session.shell import CommandResult, SandboxShell
from sandbox.session.slots import SlotTable
from sandbox.session.task_setup import begin_step, set_up_task
from sandbox.session.terminal import PseudoTerminal
from sandbox.session.user_lookup import look_up_users, switch_agent_user
from sandbox.session.users import ContainerUser
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TestsEnvironment

HELLO_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 20.0
_ENTRYPOINT_S = 5.0
"""Maximum seconds to wait for an image's ENTRYPOINT to run its command; one that never does goes on."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of a container's lifetime."""

    heartbeat_timeout_s: float
    """Seconds that the container lives if it is never extended."""
    max_lifetime_s: float
    """Maximum seconds that it lives."""


class TestsImage(NamedTuple):
    """Image of tests, on the engine."""

    __test__ = False
    of: TestsEnvironment
    name: str
    config: ImageConfig


class SandboxSession(InitConnection):
    """A running sandbox; :meth:`start` or :meth:`adopt` creates it, :meth:`close`, which never raises, ends it."""

    def __init__(self, engine: DockerEngine, container: str, key: bytes, workdir: str = "/") -> None:
        """``key`` authenticates this client to the container's PID 1 (:mod:`.init_connection.init_command`)."""
        super().__init__(engine, container, key)
        self.workdir = workdir
        self.spec: ContainerSpec | None = None
        """Specification of the container; None if it is unknown."""
        self.verification_network: Callable[[SandboxSession], AbstractAsyncContextManager[Mapping[str, str]]] = (
            _without_network
        )
        """``async with session.verification_network(verifier) as env`` gives ``verifier``, in which this session's
        tests run, the network of the tests; ``env`` holds the variables that programs need to use it. The owner of the
        session's network sets it."""
        self.watch_verifier: Callable[[SandboxSession], AbstractContextManager[object]] = nullcontext
        """``with session.watch_verifier(verifier)`` lets the pool's heartbeat and disk watch cover ``verifier`` too."""
        self._slots = SlotTable(self, workdir)
        self.agent_user = self.tests_user = self._shell_user = ContainerUser()
        """Root, unless the task or its image names another user."""
        self.login_variables = NOTHING_SET
        """The variables that login shells of the image set, none unless the task has such shells. ``spec`` has those of
        the agent too."""
        self.tests_images: tuple[TestsImage, ...] = ()
        """Images that tests have of their own; the pool keeps them while the session is open."""
        self.stopped_services: list[str] = []
        """A sentence for each service of the task that was stopped for what it did."""
        self.shell = self._slots.main_shell
        """The shell that exists from the start."""
        self.named_sessions: dict[str, NamedSession] = {}
        """Sessions that the agent has named."""
        self.terminal: PseudoTerminal | None = None
        """The terminal that receives the agent's keystrokes."""

    # ---- start

    @classmethod
    async def start(
        cls, engine: DockerEngine, spec: ContainerSpec, workdir: str, limits: SessionLimits
    ) -> SandboxSession:
        """Start a container whose shell is in ``workdir``. Raises SandboxStartError after cleaning up, TaskFault if the
        engine does not allow the task's own ulimits."""
        spec = replace(spec, command=init_command(limits.heartbeat_timeout_s, limits.max_lifetime_s, workdir))
        try:
            container = await call_with_undo(lambda: engine.create(spec), engine.remove)
        except DockerEngineError as error:
            raise SandboxStartError(str(error)) from error
        session = cls(engine, container, init_key(spec.command), workdir)
        session.spec = spec
        try:
            if spec.committed_from:
                await check_user_files(engine, container)
            if spec.disk_loop:
                await mount_loop_disk(engine, container, spec.limits.disk_bytes)
            await session.open()
            await engine.start(container)
            await session.wait_for_event(session.hello_received, HELLO_TIMEOUT_S)
            if spec.read_only:
                await make_read_only(engine, container, spec.read_only)
        except BaseException as error:
            await session._abandon()
            if isinstance(error, (DockerEngineError, SandboxDestroyed, SandboxLost, TimeoutError)):
                refused = bool(spec.ulimits) and "rlimit" in str(error)
                kind = TaskFault if refused else SandboxStartError
                raise kind(f"sandbox did not start: {error or 'PID 1 sends nothing'}") from error
            raise
        return session

    @classmethod
    async def adopt(cls, engine: DockerEngine, container: str, workdir: str = "/") -> SandboxSession:
        """Take over a running container, for example after a restart of its server.

        Its shells keep running; commands whose client is lost are killed. Raises SandboxLost.
        """
        try:
            command = (await engine.inspect(container))["Config"]["Cmd"]
        except DockerEngineError as error:
            raise SandboxLost(f"the Docker daemon does not know the container: {error}") from error
        session = cls(engine, container, init_key(command or ()), workdir)
        session.number_requests_from(secrets.randbelow(1 << 30) + (1 << 30))  # no late answer to another client fits
        try:
            await session.reattach()
        except BaseException:
            session.close_stream()
            raise
        return session

    async def setup(self, task: Task, timeout_s: float) -> None:
        """Prepare the sandbox for its task.  Raises SandboxStartError, and TaskFault when the task is at fault."""
        await set_up_task(self, task, timeout_s)

    async def begin_step(self, task: Task) -> None:
        """Prepare the sandbox for a step; see :func:`sandbox.session.task_setup.begin_step`."""
        await begin_step(self, task)

    # ---- users

    async def start_image(self, task: Task) -> None:
        """Find the users of ``task``, start what its image or the task starts, and run later commands as the
        container's user.

        Raises TaskFault for a user that the container does not have, OSError, SandboxLost, SandboxDestroyed.
        """
        container_user = await self.find_users(task)
        entrypoint = (await self.image_config()).entrypoint if task.entrypoint is None else task.entrypoint
        if entrypoint or task.command or task.healthcheck:
            await self.set_agent_user(container_user)
        if entrypoint or task.command:
            command = task.command or ("sleep", "infinity")
            words = ("/.sbx/busybox", "setsid", *entrypoint, "sh", "-c", 'echo >&3; exec "$@" 3>&-', "sh", *command)
            started = f"9< <({shlex.join(words)} < /dev/null 3>&1 > /dev/null 2>&1)"
            await self.run(f"read -t {_ENTRYPOINT_S:g} -u 9 {started} || true", 2 * _ENTRYPOINT_S)

    async def become_agent(self) -> None:
        """Run later commands as the agent's user.  Raises OSError, SandboxLost, SandboxDestroyed."""
        await self.set_agent_user(self.agent_user)

    async def switch_users(self, task: Task) -> None:
        """Find the users of a later step of the task, and run commands as the agent's from now on.

        Raises as :meth:`start_image`.
        """
        await self.find_users(task)
        await self.become_agent()

    async def find_users(self, task: Task) -> ContainerUser:
        """Find the users of ``task`` in the container's files, and return that of the container.

        Raises as :meth:`start_image`.
        """
        of_image = (await self.image_config()).user
        names = (task.agent_user or of_image, task.tests_user or of_image, task.container_user or of_image)
        self.agent_user, self.tests_user, container_user = await look_up_users(self, names)
        return container_user

    async def find_tests_user(self, task: Task) -> None:
        """Find the user of the tests of ``task`` alone, in a container of the tests' own image."""
        (self.tests_user,) = await look_up_users(self, [task.tests_user or (await self.image_config()).user])

    async def set_agent_user(self, user: ContainerUser) -> None:
        """Run commands as ``user`` from now on, with the user's HOME unless the image or the task gives another one.

        Raises OSError with PID 1's errno, DockerEngineError, SandboxLost, SandboxDestroyed.
        """
        if user == self._shell_user:
            return
        self._shell_user = user
        await switch_agent_user(self, user, "" if "HOME" in await self._given_variables() else user.home)

    async def home(self) -> str:
        """Return the agent's home directory. Raises DockerEngineError."""
        return (await self._given_variables()).get("HOME") or self.agent_user.home

    async def _given_variables(self) -> Mapping[str, str]:
        """Return the variables that the image and the task give."""
        return dict((await self.image_config()).env) | dict(self.spec.env if self.spec else ())

    @property
    def memory_bytes(self) -> int | None:
        """The container's memory limit; None if its specification is unknown."""
        return self.spec.limits.memory_bytes if self.spec is not None else None

    async def image_config(self) -> ImageConfig:
        """Return what the task's image says of its processes; nothing if the image is unknown.

        Raises DockerEngineError.
        """
        if self.spec is None:
            return ImageConfig()
        return self.spec.image_config or await self.engine.image_config(self.spec.task_image)

    # ---- shells, terminals and files

    async def run(
        self, command: str, timeout_s: float, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """Run a command in the main shell; see :meth:`sandbox.session.shell.SandboxShell.run`."""
        return await self.shell.run(command, timeout_s, on_output)

    def open_shell(self) -> SandboxShell:
        """Open one more shell in the working directory; it starts with its first command.  Raises NoFreeSlotError."""
        return self._slots.open_shell(self.workdir)

    async def open_terminal(
        self,
        argv: Sequence[str] = ("bash", "--noprofile", "--norc"),
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        spool: Spool | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> PseudoTerminal:
        """Start a process on a terminal of its own, by default in the working directory; see :class:`PseudoTerminal`.

        Raises ValueError for impossible rows or columns, NoFreeSlotError, OSError when the container cannot start a
        process, SandboxLost, SandboxDestroyed.
        """
        cwd = cwd or self.workdir
        return await self._slots.open_terminal(
            argv, rows=rows, columns=columns, cwd=cwd, env=env, spool=spool, on_output=on_output
        )

    def close_slot(self, used: SandboxShell | PseudoTerminal) -> None:
        """Kill what runs in a shell or a terminal, without waiting for it."""
        self._slots.close(used)

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = 0o644, as_root: bool = False) -> None:
        """Write files and the folders above them, as the agent's user or as root; see
        :func:`sandbox.session.files.write_files`."""
        await files.write_files(self, contents, mode=mode, flags=FileFlag.NONE if as_root else FileFlag.AS_AGENT)

    async def clear_folder(self, path: str, *, mode: int) -> None:
        """Empty a folder, or create it, as root; see :func:`sandbox.session.files.replace_path`."""
        await files.replace_path(self, f"{path}/", mode=mode, flags=FileFlag.REPLACE | FileFlag.CLEAR)

    async def read_file(self, path: str, max_bytes: int = files.MAX_FILE_BYTES) -> bytes:
        """Read a regular file as the agent's user; see :func:`sandbox.session.files.read_file`."""
        return await files.read_file(self, path, max_bytes, FileFlag.AS_AGENT)

    async def read_tree(
        self, path: str, *, max_bytes: int = files.MAX_TREE_BYTES, max_files: int = files.MAX_TREE_FILES
    ) -> dict[str, bytes]:
        """Read the regular files below a folder as the agent's user; see :func:`sandbox.session.files.read_tree`."""
        user = self.agent_user.process
        return await files.read_tree(self, path, max_bytes=max_bytes, max_files=max_files, user=user)

    def handle(self, message: SlotMessage) -> None:
        """Pass a message of PID 1 on to its shell or terminal."""
        self._slots.handle(message)

    def on_requests_lost(self, after: int, up_to: int) -> None:
        """Fail the commands whose requests never reached PID 1."""
        self._slots.on_requests_lost(after, up_to)

    # ---- end

    def extend(self, seconds: float) -> None:
        """Let the container live for ``seconds`` from now, or to its maximum.

        Does not wait; PID 1's answer updates ``remaining_s``.
        """
        if self.alive:
            self.send(init_requests.extend_frame(self.next_request(), round(seconds * 1000)))

    async def close(self) -> None:
        """End the container. The request is sent before the first await, so that a cancelled close still closes."""
        if not self.mark_closing():
            return
        self.send(init_requests.quit_frame(self.next_request()))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.stream_ended()
        except TimeoutError:
            await self._abandon()
        else:
            if self.spec is None or not self.spec.auto_remove:
                await self._abandon()
        finally:
            self.close_stream()

    async def destroy(self, why: SandboxDestroyed) -> None:
        """End the container for what the agent did; waiters for an answer get ``why``."""
        self.mark_destroyed(why)
        await self._abandon()

    async def _abandon(self) -> None:
        """Remove by force.  If the daemon does not answer, the container ends at its own deadline."""
        self.mark_closing()
        self.close_stream()
        with contextlib.suppress(InfraError):
            await asyncio.shield(self.engine.remove(self.container))


def _without_network(verifier: SandboxSession) -> AbstractAsyncContextManager[Mapping[str, str]]:
    del verifier
    return nullcontext({})
