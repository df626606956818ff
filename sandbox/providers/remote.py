"""Sandboxes behind a pool server or a router (:mod:`sandbox.providers.interface`).

Every request that changes something carries a request id, so that a lost reply can be requested again and nothing is
done twice. A full server is tried again after its Retry-After. A background heartbeat keeps all leases alive, even
while an operation runs; when the client dies, the server ends them at their deadline.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import os
import socket
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
from pydantic import TypeAdapter

from protocol.errors import UserError
from protocol.processes.cancellation import call_with_undo
from protocol.processes.task_groups import task_group
from sandbox.agent_programs import AgentPrograms
from sandbox.errors import (
    BuildError,
    SandboxDestroyed,
    SandboxLost,
    SandboxStartError,
    SandboxVanished,
    ShellBusy,
    TaskFault,
)
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import max_grading_s
from sandbox.http import failures
from sandbox.http.json_client import BUSY_STATUSES, RETRY_PAUSE_S, TRANSPORT_ERRORS, HttpStatusError, JsonHttpClient
from sandbox.http.messages import LEAST_DEADLINE_S, MAX_S
from sandbox.http.streams import AGENT_CONNECTION_PATH, LEASE_PARAMETER, NO_CONNECTION_S
from sandbox.http.task_codec import MAX_FILES, TaskRefused, encode_task
from sandbox.images.image_names import image_for
from sandbox.providers.agent_relay import relay_agent_connections
from sandbox.providers.interface import SandboxGroup
from sandbox.session.files import MAX_FILE_BYTES, MAX_TREE_BYTES
from sandbox.session.shell import INTERRUPT_S, PROGRAM_POLL_S, CommandResult
from sandbox.tasks.task import Task
from sandbox.tools import NO_OBJECT, ToolArguments, ToolResult

_COMMAND, _GRADE = TypeAdapter(CommandResult), TypeAdapter(GradeResult)
RETURN_SLOT_TIMEOUT_S = 10.0
"""Seconds that a cancelled request for a slot waits for its answer, so that the slot can be returned instead of being
held until it expires."""
RESULT_POLL_S = 30.0
"""Seconds that one request waits for a program's end, before a proxy between takes it for dead."""
INTERRUPTED_S = INTERRUPT_S + 10.0
"""Seconds from an answered interrupt to the program's end, before the sandbox counts as lost."""
_SLACK_S = 60.0
"""Seconds beyond a command's own limit."""

_BATCH_BYTES = 32 << 20
"""Bytes of files and their paths in one request."""
_KINDS: Mapping[str, type[Exception]] = {
    failures.BAD_REQUEST: ValueError,
    failures.SHELL_BUSY: ShellBusy,
    failures.START_FAILED: SandboxStartError,
    failures.BUILD_FAILED: BuildError,
    failures.TASK_FAULT: TaskFault,
    failures.TASK_REFUSED: UserError,
}
"""Exceptions by error code, for errors that do not mean that the sandbox is lost."""


class RemotePool:
    """Sandboxes of a pool server: ``async with RemotePool(url) as pool: sandbox = await pool.open(task)``."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        acquire_s: float,
        request_s: float = 660.0,
        unreachable_s: float = 30.0,
        programs: AgentPrograms | None = None,
    ) -> None:
        """``acquire_s``: maximum seconds to wait for a sandbox; ``request_s``: for a reply of unknown duration;
        ``unreachable_s``: for a server that does not answer, before its sandboxes count as lost; ``programs`` are those
        of an agent, which each sandbox has."""
        self._server = JsonHttpClient(url, token, request_s=request_s, unreachable_s=unreachable_s)
        self._url, self._acquire_s, self.request_s = self._server.url, acquire_s, request_s
        self._programs = programs
        self._leases: dict[str, float] = {}
        """Seconds that each lease lives without a heartbeat."""
        self._tasks = asyncio.TaskGroup()
        self._heart: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        await self._tasks.__aenter__()
        self._heart = self._tasks.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._heart is not None:
            self._heart.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self._server.__aexit__(kind, error, trace)

    async def open(
        self, task: Task, deadline_s: float | None = None, group: SandboxGroup | None = None
    ) -> RemoteSandbox:
        """Open a sandbox for ``task``; wait while the server is full, or has no room for all of ``group``.

        Raises SandboxStartError (TaskFault if the task itself is at fault), and UserError for a task that the server
        refuses.
        """
        give_up = time.monotonic() + self._acquire_s
        request = {"request_id": uuid.uuid4().hex, "image": image_for(task)}
        request |= {"task_key": task.id} if group is None else {"task_id": group.name, "n_slots": group.size}
        try:
            async with asyncio.timeout(self._acquire_s):
                lease = await self._slot(request, give_up)
                sandbox = RemoteSandbox(self, str(lease["lease_id"]), deadline_s, task)
                self._leases[sandbox.lease_id] = float(lease["ttl_s"])
                try:
                    meta = {"task_name": task.id, "instruction": task.instruction, "task": encode_task(task)}
                    programs = None if self._programs is None else self._programs._asdict()
                    await sandbox.post("/reset", give_up - time.monotonic(), task_meta=meta, agent_programs=programs)
                except BaseException:
                    await sandbox.close()
                    raise
        except TimeoutError as error:
            raise SandboxStartError(f"{self._url} provided no sandbox within {self._acquire_s:g} s") from error
        except ValueError as error:
            raise TaskRefused(f"{self._url} refuses the request for task {task.id!r}: {error}") from error
        except (HttpStatusError, SandboxLost, SandboxDestroyed, *TRANSPORT_ERRORS) as error:
            raise SandboxStartError(f"{self._url} provided no sandbox: {error}") from error
        return sandbox

    async def _slot(self, request: dict[str, Any], give_up: float) -> dict[str, Any]:
        """Wait while the server is full. When this is cancelled, a slot that is being allocated is returned."""
        while True:
            try:
                return await call_with_undo(lambda: self._allocated(request), self._return_slot, RETURN_SLOT_TIMEOUT_S)
            except HttpStatusError as refused:
                if refused.status not in BUSY_STATUSES or time.monotonic() + refused.retry_after_s > give_up:
                    raise
                await asyncio.sleep(refused.retry_after_s or RETRY_PAUSE_S)

    async def _allocated(self, request: dict[str, Any]) -> dict[str, Any]:
        if "task_id" not in request:
            return await self.post_with_retries("/allocate", request)
        given = await self.post_with_retries("/allocate_group", request)
        return {"lease_id": given["assignments"][0]["slot_id"], "ttl_s": given["ttl_s"]}

    async def _return_slot(self, slot: dict[str, Any]) -> None:
        await RemoteSandbox(self, str(slot["lease_id"])).close()

    async def post_with_retries(
        self, path: str, body: dict[str, Any], deadline_s: float | None = None
    ) -> dict[str, Any]:
        """See :meth:`sandbox.http.json_client.JsonHttpClient.post_with_retries`."""
        return await self._server.post_with_retries(path, body, deadline_s)

    def open_agent_connection(
        self, lease_id: str, body: AsyncIterable[bytes]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send the request that carries the next connection of a lease's agent program."""
        path = f"{AGENT_CONNECTION_PATH}?{LEASE_PARAMETER}={lease_id}"
        return self._server.open_stream(path, body, NO_CONNECTION_S + _SLACK_S)

    async def _beat(self) -> None:
        """Keep every lease alive, three times within its time to live."""
        while True:
            await asyncio.sleep(min(self._leases.values(), default=3.0) / 3)
            async with asyncio.TaskGroup() as group:
                for lease_id in tuple(self._leases):
                    group.create_task(self._renew(lease_id))

    async def _renew(self, lease_id: str) -> None:
        try:
            async with asyncio.timeout(10.0):
                await self._server.post("/heartbeat", {"lease_id": lease_id})
        except (HttpStatusError, *TRANSPORT_ERRORS):
            return  # the next heartbeat may succeed; an operation on a lost lease reports what happened

    def forget(self, lease_id: str) -> None:
        """Stop renewing a lease."""
        self._leases.pop(lease_id, None)


class RemoteSandbox:
    """A lease of a remote pool; see :class:`sandbox.providers.interface.Sandbox`."""

    def __init__(
        self, pool: RemotePool, lease_id: str, deadline_s: float | None = None, task: Task | None = None
    ) -> None:
        """``task`` is None if another client opened the sandbox."""
        self._pool, self.lease_id, self._task = pool, lease_id, task
        self._ends_at = time.monotonic() + deadline_s if deadline_s else None
        self._lost = self._closed = self._ran_agent = False
        self._agent_port = 0

    @property
    def alive(self) -> bool:
        """True if the sandbox existed at the last reply."""
        return not (self._lost or self._closed)

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        done = await self.post("/run", timeout_s + _SLACK_S, command=command, timeout_s=timeout_s)
        return _COMMAND.validate_python(done["result"])

    async def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        for batch in _batches(files):
            packed = {path: base64.b64encode(data).decode() for path, data in batch.items()}
            await self.post("/write_files", self._pool.request_s, files=packed, mode=mode)

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        reply = await self.post("/read_file", self._pool.request_s, path=path, max_bytes=max_bytes)
        return base64.b64decode(str(reply["content"]))

    async def read_tree(self, path: str, max_bytes: int = MAX_TREE_BYTES) -> Mapping[str, bytes]:
        reply = await self.post("/read_tree", self._pool.request_s, path=path, max_bytes=max_bytes)
        return {name: base64.b64decode(content) for name, content in cast("dict[str, str]", reply["files"]).items()}

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        if not isinstance(arguments, Mapping):
            return NO_OBJECT
        call = {"name": name, "arguments": dict(cast("ToolArguments", arguments))}
        try:
            done = self._ended(await self.post("/exec_tool", self._pool.request_s, tool_call=call))
        except ValueError as error:  # it cannot be sent, or the server refuses it
            return ToolResult(f"Error: {error}.")
        text = str(done["observation"])
        return ToolResult(text, done["exit_code"], float(done["ms"]), bool(done["timed_out"]), text)

    @asynccontextmanager
    async def listen(self, port: int) -> AsyncGenerator[socket.socket]:
        """Listen in the sandbox; see :meth:`sandbox.providers.pool_sandbox.AgentSandbox.listen`."""
        self._agent_port = port
        async with relay_agent_connections(partial(self._pool.open_agent_connection, self.lease_id)) as listener:
            yield listener

    async def run_agent(
        self, command: str, remaining_s: Callable[[], float], on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run the program of an agent; see :meth:`sandbox.providers.pool_sandbox.AgentSandbox.run_agent`."""
        self._ran_agent = True
        async with task_group() as group:
            watching = group.create_task(self._interrupt_at_end(remaining_s))
            result = await self._agent_result(command)
            watching.cancel()
        on_output(result.output)
        return result

    async def _agent_result(self, command: str) -> CommandResult:
        """Send the request that runs the program again and again, until the reply has its result."""
        request = {"request_id": uuid.uuid4().hex, "command": command, "timeout_s": MAX_S, "port": self._agent_port}
        while (result := (await self.post("/run_agent", RESULT_POLL_S, **request))["result"]) is None:
            continue
        return _COMMAND.validate_python(result)

    async def _interrupt_at_end(self, remaining_s: Callable[[], float]) -> None:
        """Interrupt the program when it has no time left, again and again: a request may arrive before its start.

        Raises SandboxLost if it goes on nevertheless.
        """
        give_up = math.inf
        while time.monotonic() < give_up:
            await asyncio.sleep(PROGRAM_POLL_S)
            if remaining_s() <= 0:
                with contextlib.suppress(HttpStatusError, *TRANSPORT_ERRORS):
                    await self._pool.post_with_retries("/interrupt", {"lease_id": self.lease_id})
                    give_up = min(give_up, time.monotonic() + INTERRUPTED_S)
        self._lost = True
        raise SandboxLost(f"the agent's program did not end within {INTERRUPTED_S:g} s of its interrupt")

    async def begin_step(self, number: int) -> None:
        """Begin a step of the task; see :meth:`sandbox.providers.pool_sandbox.PoolSandbox.begin_step`."""
        await self.post("/begin_step", self._pool.request_s, step=number)

    async def grade(self, timeout_s: float | None = None, commands: Sequence[str] = ()) -> GradeResult:
        most_s = max_grading_s(self._task, timeout_s) if self._task else self._pool.request_s
        unseen = list(commands) if self._ran_agent else []  # the server has seen the others itself
        done = self._ended(await self.post("/evaluate", most_s, timeout_s=timeout_s, commands=unseen))
        return _GRADE.validate_python(done["result"])

    def _ended(self, reply: dict[str, Any]) -> dict[str, Any]:
        if reply["ended"]:
            self._lost = True
            raise SandboxDestroyed(str(reply.get("observation") or "the agent ended its own sandbox"))
        return reply

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pool.forget(self.lease_id)
        try:
            await asyncio.shield(self._close())
        except (HttpStatusError, *TRANSPORT_ERRORS):
            return  # without heartbeats it ends at its deadline

    async def _close(self) -> None:
        async with asyncio.timeout(20.0):
            await self._pool.post_with_retries("/close", {"lease_id": self.lease_id})

    async def post(self, endpoint: str, deadline_s: float, **fields: object) -> dict[str, Any]:
        """Send a request about the lease; router and client each wait a little longer than ``deadline_s``.

        Raises the exceptions of the interface.
        """
        if self._closed:
            raise SandboxLost("the session was closed")
        left_s = self._ends_at - time.monotonic() if self._ends_at else None
        deadline_s = max(min(deadline_s, MAX_S, MAX_S if left_s is None else left_s), LEAST_DEADLINE_S)
        body = {"lease_id": self.lease_id, "request_id": uuid.uuid4().hex, "deadline_s": deadline_s, **fields}
        try:
            async with asyncio.timeout(left_s):
                return await self._pool.post_with_retries(endpoint, body, deadline_s)
        except HttpStatusError as refused:
            raise self._translated(refused) from None
        except TimeoutError as error:
            await self.close()
            raise SandboxLost("the session reached its deadline, or the server did not answer in time") from error
        except aiohttp.ClientError as error:
            self._lost = True
            raise SandboxLost(f"the pool server does not answer: {type(error).__name__} {error}") from error

    def _translated(self, refused: HttpStatusError) -> Exception:
        message = str(refused)
        match refused.code:
            case failures.FILE_ERROR if refused.errno:
                return OSError(refused.errno, os.strerror(refused.errno))
            case code if code in _KINDS:
                return _KINDS[code](message)
            case failures.DESTROYED:
                self._lost = True
                return SandboxDestroyed(message)
            case failures.VANISHED:
                self._lost = True
                return SandboxVanished(message)
            case _:
                self._lost = True
                return SandboxLost(f"{message} ({refused.status} {refused.code})")


def _batches(files: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Divide files into what one request may have; of the bytes only a single file may be more."""
    batch, size = dict[str, bytes](), 0
    for path, data in files.items():
        if batch and (len(batch) == MAX_FILES or size + len(path) + len(data) > _BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[path] = data
        size += len(path) + len(data)
    yield batch
