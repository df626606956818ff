"""The pool server's HTTP side: one endpoint for each message, and nothing decided here."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.applications import Starlette

from sandbox.edge.app import application
from sandbox.edge.auth import Access
from sandbox.edge.endpoint import Call, Endpoint
from sandbox.errors import SandboxDestroyed
from sandbox.grader import GradeResult, longest_s
from sandbox.leases import SlotsExhausted
from sandbox.provider import Sandbox
from sandbox.server import messages as m
from sandbox.server.messages import Reply
from sandbox.server.metrics import render
from sandbox.server.operations import Asked
from sandbox.server.service import LeasedRun, PoolService
from sandbox.shell import CommandResult
from sandbox.tools import OPENCLAW

DESTROYED = "sandbox_destroyed"
ON_LEASE = (401, 404, 409, 410, 422, 503, 504)
Op = TypeVar("Op", m.Reset, m.ExecTool, m.Evaluate, m.Run, m.WriteFiles)


def create_app(open_service: Callable[[], AbstractAsyncContextManager[PoolService]], access: Access) -> Starlette:
    """``open_service`` is entered when the server starts and left when it stops."""
    handlers = _Handlers()

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with open_service() as service:
            handlers.service = service
            yield

    title = "longshore sandbox pool"
    return application(title, handlers.table(), running, lambda: render(handlers.service), access)


class _Handlers:
    service: PoolService

    def table(self) -> list[Endpoint[Any]]:
        return [
            Endpoint("/healthz", "whether it answers", None, m.Done, self.health),
            Endpoint("/status", "slots, tasks, images", None, m.Status, self.status, (401,)),
            Endpoint("/allocate", "a slot", m.Allocate, m.Allocated, self.allocate, (401, 429, 503)),
            Endpoint(
                "/allocate_group", "slots, all or none", m.AllocateGroup, m.GroupAllocated, self.allocate_group,
                (401, 409, 422, 503),
            ),
            Endpoint("/release_group", "end a group", m.ReleaseGroup, m.GroupReleased, self.release_group, (401,)),
            Endpoint("/heartbeat", "renew a lease", m.Heartbeat, m.Done, self.heartbeat, (401, 404)),
            Endpoint("/reset", "a fresh sandbox for the lease", m.Reset, m.ResetDone, self.reset, ON_LEASE),
            Endpoint("/exec_tool", "call a tool", m.ExecTool, m.Observation, self.exec_tool, ON_LEASE),
            Endpoint("/evaluate", "run the hidden tests", m.Evaluate, m.Score, self.evaluate, ON_LEASE),
            Endpoint("/close", "end a lease", m.Close, m.Closed, self.close, (401,)),
            Endpoint("/run", "a command in the lease's shell", m.Run, m.RunDone, self.run, ON_LEASE),
            Endpoint("/write_files", "files in", m.WriteFiles, m.Done, self.write_files, ON_LEASE),
            Endpoint("/read_file", "a file out", m.ReadFile, m.FileRead, self.read_file, ON_LEASE),
            Endpoint("/read_tree", "a folder's files out", m.ReadTree, m.TreeRead, self.read_tree, ON_LEASE),
        ]  # fmt: skip

    async def health(self, _: Call[m.Message]) -> Reply:
        return Reply(200, m.Done())

    async def status(self, _: Call[m.Message]) -> Reply:
        service, limits = self.service, self.service.settings.leases
        keys = service.table.task_keys()
        pool = m.PoolStatus(
            max_tasks=limits.tasks,
            active_tasks=len(keys),
            max_runs_per_task=limits.runs_per_task,
            total_active_runs=len(service.table),
            pending_closes=service.pending_closes,
            tasks={key: m.TaskRuns(active_runs=runs) for key, runs in keys.items()},
            groups=service.table.groups(),
            kept=service.table.kept(),
            images=list(service.images),
            wait_s=service.provider.wait_s(),
            draining=service.draining,
        )
        return Reply(200, m.Status(pool=pool))

    async def allocate(self, call: Call[m.Allocate]) -> Reply:
        given = self.service.allocate(call.body.task_key, call.body.request_id or "")
        ttl_s = self.service.settings.leases.ttl_s
        return Reply(200, m.Allocated(lease_id=given.leases[0].id, reused=given.reused, ttl_s=ttl_s))

    async def allocate_group(self, call: Call[m.AllocateGroup]) -> Reply:
        """SETA's clients know 503, where OpenClaw's know 429."""
        try:
            given = self.service.allocate_group(
                call.body.task_id, call.body.n_slots, call.body.request_id or "", keep=call.body.keep
            )
        except SlotsExhausted as error:
            raise m.WireError(503, error.code, str(error), retry_after_s=error.retry_after_s) from error
        node = str(call.request.base_url).rstrip("/")
        slots = [m.Assignment(node_url=node, slot_id=lease.id) for lease in given.leases]
        ttl_s = self.service.settings.leases.ttl_s
        return Reply(200, m.GroupAllocated(task_id=call.body.task_id, assignments=slots, ttl_s=ttl_s))

    async def release_group(self, call: Call[m.ReleaseGroup]) -> Reply:
        released = self.service.release_group(call.body.task_id)
        return Reply(200, m.GroupReleased(task_id=call.body.task_id, released_slots=released))

    async def heartbeat(self, call: Call[m.Heartbeat]) -> Reply:
        self.service.heartbeat(call.body.lease_id)
        return Reply(200, m.Done())

    async def close(self, call: Call[m.Close]) -> Reply:
        return Reply(200, m.Closed(found=self.service.close(call.body.lease_id)))

    async def _once(
        self, call: Call[Op], what: str, limit_s: Callable[[LeasedRun], float], do: Callable[[LeasedRun], Any]
    ) -> Reply:
        body = call.body
        asked = Asked(what, call.digest, body.request_id or "", call)
        return await self.service.operate(body.lease_id, asked, do, limit_s, body.deadline_s)

    async def reset(self, call: Call[m.Reset]) -> Reply:
        body, settings = call.body, self.service.settings
        times = body.task_timeouts or m.TaskTimeouts()
        limit_s = (times.ensure_image or settings.ensure_image_s) + (times.reset_session or settings.reset_s)

        async def do(run: LeasedRun) -> Reply:
            task = await self.service.reset(run, body.task_meta, times.eval)
            name = body.task_meta.get("task_name", task.id)
            told = body.task_meta.get("instruction", task.instruction)
            schemas = [json.loads(json.dumps(tool.schema)) for tool in OPENCLAW.values()]
            return Reply(200, m.ResetDone(user_msg=f"Task name:{name}\nTask instruction: {told}", tool_schemas=schemas))

        return await self._once(call, "reset", lambda _: limit_s, do)

    async def exec_tool(self, call: Call[m.ExecTool]) -> Reply:
        tool = call.body.tool_call

        async def do(run: LeasedRun) -> Reply:
            sandbox, _ = self.service.sandbox(run)
            try:
                done = await sandbox.call_tool(tool.name, {} if tool.arguments is None else tool.arguments)
            except SandboxDestroyed as error:
                return Reply(200, m.Observation(observation=f"The sandbox is gone: {error}.", ended=DESTROYED))
            return Reply(
                200,
                m.Observation(observation=done.text, exit_code=done.exit_code, timed_out=done.timed_out, ms=done.ms),
            )

        return await self._once(call, "exec_tool", lambda _: m.MAX_COMMAND_S, do)

    async def evaluate(self, call: Call[m.Evaluate]) -> Reply:
        timeout_s = call.body.timeout_s

        def limit_s(run: LeasedRun) -> float:
            if run.evaluate_s and not timeout_s:
                return run.evaluate_s
            return longest_s(run.task, timeout_s) if run.task else 0.0

        async def do(run: LeasedRun) -> Reply:
            sandbox, _ = self.service.sandbox(run)
            try:
                graded = await sandbox.grade(timeout_s)
            except SandboxDestroyed:
                return Reply(200, m.Score(score=0.0, ended=DESTROYED))
            return Reply(200, m.Score(score=graded.pass_ratio, result=_values(graded)))

        return await self._once(call, "evaluate", limit_s, do)

    async def run(self, call: Call[m.Run]) -> Reply:
        body = call.body

        async def do(run: LeasedRun) -> Reply:
            done = await self.service.sandbox(run)[0].run(body.command, body.timeout_s)
            return Reply(200, m.RunDone(result=_values(done)))

        return await self._once(call, "run", lambda _: body.timeout_s, do)

    async def write_files(self, call: Call[m.WriteFiles]) -> Reply:
        async def do(run: LeasedRun) -> Reply:
            await self.service.sandbox(run)[0].write_files(call.body.files, mode=call.body.mode)
            return Reply(200, m.Done())

        return await self._once(call, "write_files", lambda _: 0.0, do)

    async def read_file(self, call: Call[m.ReadFile]) -> Reply:
        async with self._reading(call.body) as sandbox:
            content = await sandbox.read_file(call.body.path, call.body.max_bytes)
        return Reply(200, m.FileRead(content=base64.b64encode(content).decode()))

    async def read_tree(self, call: Call[m.ReadTree]) -> Reply:
        async with self._reading(call.body) as sandbox:
            found = await sandbox.read_tree(call.body.path, call.body.max_bytes)
        files = {_text(path): base64.b64encode(content).decode() for path, content in found.items()}
        return Reply(200, m.TreeRead(files=files))

    @asynccontextmanager
    async def _reading(self, body: m.Timed) -> AsyncGenerator[Sandbox]:
        """Reading changes nothing: it is neither recorded nor queued behind an operation."""
        with self.service.table.operation(body.lease_id):
            sandbox, _ = self.service.sandbox(self.service.run_of(body.lease_id))
            async with asyncio.timeout(body.deadline_s):
                yield sandbox


def _text(path: str) -> str:
    """A file's name, with replacement characters for what is not UTF-8."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _values(result: CommandResult | GradeResult) -> dict[str, Any]:
    """A result as JSON values; text that is not Unicode (lone surrogates) is made so."""
    return json.loads(json.dumps(asdict(result)))
