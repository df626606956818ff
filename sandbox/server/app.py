"""The pool server's HTTP endpoints, one for each message; the service makes the decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.applications import Starlette

from sandbox.agent_programs import AgentPrograms
from sandbox.errors import SandboxDestroyed
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import max_grading_s
from sandbox.http import messages as m
from sandbox.http.application import create_application
from sandbox.http.auth import Access
from sandbox.http.endpoints import HttpCall, HttpEndpoint
from sandbox.http.failures import LEASE_ERROR_STATUSES
from sandbox.http.messages import HttpReply
from sandbox.http.streams import AGENT_CONNECTION_PATH, StreamCall, StreamEndpoint
from sandbox.pool.leases import SlotsExhausted
from sandbox.providers.interface import Sandbox
from sandbox.server.lease_state import LeaseState
from sandbox.server.metrics import render_metrics
from sandbox.server.operations import RequestedOperation
from sandbox.server.service import PoolService
from sandbox.session.shell import CommandResult
from sandbox.tools import OPENCLAW

ENDED_DESTROYED = "sandbox_destroyed"
Op = TypeVar(
    "Op",
    m.ResetRequest,
    m.BeginStepRequest,
    m.ExecToolRequest,
    m.EvaluateRequest,
    m.RunCommandRequest,
    m.RunAgentRequest,
    m.WriteFilesRequest,
)


def create_app(open_service: Callable[[], AbstractAsyncContextManager[PoolService]], access: Access) -> Starlette:
    """Build the application; ``open_service`` is entered when the server starts and left when it stops."""
    handlers = _Handlers()

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with open_service() as service:
            handlers.service = service
            yield

    return create_application(
        "longshore sandbox pool",
        handlers.table(),
        running,
        lambda: render_metrics(handlers.service),
        access,
        more_routes=[StreamEndpoint(handlers.carry_agent_connection).route(AGENT_CONNECTION_PATH)],
    )


class _Handlers:
    service: PoolService

    def table(self) -> list[HttpEndpoint[Any]]:
        return [
            HttpEndpoint("/healthz", "whether it answers", None, m.OkReply, self.health),
            HttpEndpoint("/status", "slots, tasks, images", None, m.PoolStatusReply, self.status, (401,)),
            HttpEndpoint("/allocate", "a slot", m.AllocateRequest, m.AllocateReply, self.allocate, (401, 429, 503)),
            HttpEndpoint(
                "/allocate_group",
                "slots, all or none",
                m.AllocateGroupRequest,
                m.AllocateGroupReply,
                self.allocate_group,
                (401, 409, 422, 503),
            ),
            HttpEndpoint(
                "/release_group", "end a group", m.ReleaseGroupRequest, m.ReleaseGroupReply, self.release_group, (401,)
            ),
            HttpEndpoint("/heartbeat", "renew a lease", m.HeartbeatRequest, m.OkReply, self.heartbeat, (401, 404)),
            HttpEndpoint(
                "/reset",
                "a fresh sandbox for the lease",
                m.ResetRequest,
                m.ResetReply,
                self.reset,
                LEASE_ERROR_STATUSES,
            ),
            HttpEndpoint(
                "/exec_tool", "call a tool", m.ExecToolRequest, m.ExecToolReply, self.exec_tool, LEASE_ERROR_STATUSES
            ),
            HttpEndpoint(
                "/evaluate",
                "run the hidden tests",
                m.EvaluateRequest,
                m.EvaluateReply,
                self.evaluate,
                LEASE_ERROR_STATUSES,
            ),
            HttpEndpoint(
                "/begin_step",
                "a step of the task",
                m.BeginStepRequest,
                m.OkReply,
                self.begin_step,
                LEASE_ERROR_STATUSES,
            ),
            HttpEndpoint(
                "/run_agent",
                "an agent's program in the lease's shell",
                m.RunAgentRequest,
                m.RunAgentReply,
                self.run_agent,
                LEASE_ERROR_STATUSES,
            ),
            HttpEndpoint("/interrupt", "end it", m.InterruptRequest, m.OkReply, self.interrupt, (401, 404)),
            HttpEndpoint("/close", "end a lease", m.CloseRequest, m.CloseReply, self.close, (401,)),
            HttpEndpoint(
                "/run",
                "a command in the lease's shell",
                m.RunCommandRequest,
                m.RunCommandReply,
                self.run,
                LEASE_ERROR_STATUSES,
            ),
            HttpEndpoint(
                "/write_files", "files in", m.WriteFilesRequest, m.OkReply, self.write_files, LEASE_ERROR_STATUSES
            ),
            HttpEndpoint(
                "/read_file", "a file out", m.ReadFileRequest, m.ReadFileReply, self.read_file, LEASE_ERROR_STATUSES
            ),
            HttpEndpoint(
                "/read_tree",
                "a folder's files out",
                m.ReadTreeRequest,
                m.ReadTreeReply,
                self.read_tree,
                LEASE_ERROR_STATUSES,
            ),
        ]

    async def health(self, _: HttpCall[m.ApiMessage]) -> HttpReply:
        return HttpReply(200, m.OkReply())

    async def status(self, _: HttpCall[m.ApiMessage]) -> HttpReply:
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
            reserved=service.table.reserved_slots(),
            images=list(service.images),
            agent_programs=await asyncio.to_thread(lambda: list(service.provider.agent_programs())),
            can_run_agents=service.provider.can_listen,
            wait_s=service.provider.wait_s(),
            draining=service.draining,
        )
        return HttpReply(200, m.PoolStatusReply(pool=pool))

    async def allocate(self, call: HttpCall[m.AllocateRequest]) -> HttpReply:
        given = self.service.allocate(call.body.task_key, call.body.request_id or "")
        ttl_s = self.service.settings.leases.ttl_s
        return HttpReply(200, m.AllocateReply(lease_id=given.leases[0].id, reused=given.reused, ttl_s=ttl_s))

    async def allocate_group(self, call: HttpCall[m.AllocateGroupRequest]) -> HttpReply:
        """Answer 503 when the server is full, as SETA's clients expect; OpenClaw's expect 429."""
        try:
            given = self.service.allocate_group(
                call.body.task_id, call.body.n_slots, call.body.request_id or "", reserve=call.body.reserve
            )
        except SlotsExhausted as error:
            raise m.HttpError(503, error.code, str(error), retry_after_s=error.retry_after_s) from error
        node = str(call.request.base_url).rstrip("/")
        slots = [m.SlotAssignment(node_url=node, slot_id=lease.id) for lease in given.leases]
        ttl_s = self.service.settings.leases.ttl_s
        return HttpReply(200, m.AllocateGroupReply(task_id=call.body.task_id, assignments=slots, ttl_s=ttl_s))

    async def release_group(self, call: HttpCall[m.ReleaseGroupRequest]) -> HttpReply:
        released = self.service.release_group(call.body.task_id)
        return HttpReply(200, m.ReleaseGroupReply(task_id=call.body.task_id, released_slots=released))

    async def heartbeat(self, call: HttpCall[m.HeartbeatRequest]) -> HttpReply:
        self.service.heartbeat(call.body.lease_id)
        return HttpReply(200, m.OkReply())

    async def close(self, call: HttpCall[m.CloseRequest]) -> HttpReply:
        return HttpReply(200, m.CloseReply(found=self.service.close(call.body.lease_id)))

    async def _once(
        self, call: HttpCall[Op], what: str, limit_s: Callable[[LeaseState], float], do: Callable[[LeaseState], Any]
    ) -> HttpReply:
        body = call.body
        request = RequestedOperation(what, call.digest, body.request_id or "", call)
        return await self.service.run_operation(body.lease_id, request, do, limit_s, body.deadline_s)

    async def reset(self, call: HttpCall[m.ResetRequest]) -> HttpReply:
        body, settings = call.body, self.service.settings
        times, given = body.task_timeouts or m.TaskTimeouts(), body.agent_programs
        programs = None if given is None else AgentPrograms(given.folder, given.memory_mb, given.pids)
        limit_s = (times.ensure_image or settings.image_timeout_s) + (times.reset_session or settings.reset_timeout_s)

        async def do(run: LeaseState) -> HttpReply:
            task = await self.service.reset(run, body.task_meta, times.eval, programs)
            name = body.task_meta.get("task_name", task.id)
            instruction = body.task_meta.get("instruction", task.instruction)
            schemas = [json.loads(json.dumps(tool.schema)) for tool in OPENCLAW.values()]
            return HttpReply(
                200, m.ResetReply(user_msg=f"Task name:{name}\nTask instruction: {instruction}", tool_schemas=schemas)
            )

        return await self._once(call, "reset", lambda _: limit_s, do)

    async def exec_tool(self, call: HttpCall[m.ExecToolRequest]) -> HttpReply:
        tool = call.body.tool_call

        async def do(run: LeaseState) -> HttpReply:
            sandbox, _ = self.service.require_sandbox(run)
            try:
                done = await sandbox.call_tool(tool.name, tool.arguments or {})
            except SandboxDestroyed as error:
                return HttpReply(
                    200, m.ExecToolReply(observation=f"The sandbox no longer exists: {error}.", ended=ENDED_DESTROYED)
                )
            return HttpReply(
                200,
                m.ExecToolReply(observation=done.text, exit_code=done.exit_code, timed_out=done.timed_out, ms=done.ms),
            )

        return await self._once(call, "exec_tool", lambda _: m.MAX_COMMAND_S, do)

    async def evaluate(self, call: HttpCall[m.EvaluateRequest]) -> HttpReply:
        timeout_s = call.body.timeout_s

        def limit_s(run: LeaseState) -> float:
            if run.evaluate_s and not timeout_s:
                return run.evaluate_s
            return max_grading_s(run.task, timeout_s) if run.task else 0.0

        async def do(run: LeaseState) -> HttpReply:
            sandbox, _ = self.service.require_sandbox(run)
            self.service.require_step(run)
            try:
                graded = await sandbox.grade(timeout_s, call.body.commands)
            except SandboxDestroyed:
                return HttpReply(200, m.EvaluateReply(score=0.0, ended=ENDED_DESTROYED))
            return HttpReply(200, m.EvaluateReply(score=graded.pass_ratio, result=_values(graded)))

        return await self._once(call, "evaluate", limit_s, do)

    async def run(self, call: HttpCall[m.RunCommandRequest]) -> HttpReply:
        body = call.body

        async def do(run: LeaseState) -> HttpReply:
            done = await self.service.require_sandbox(run)[0].run(body.command, body.timeout_s)
            return HttpReply(200, m.RunCommandReply(result=_values(done)))

        return await self._once(call, "run", lambda _: body.timeout_s, do)

    async def begin_step(self, call: HttpCall[m.BeginStepRequest]) -> HttpReply:
        async def do(run: LeaseState) -> HttpReply:
            await self.service.begin_step(run, call.body.step)
            return HttpReply(200, m.OkReply())

        return await self._once(call, "begin_step", lambda _: self.service.settings.reset_timeout_s, do)

    async def run_agent(self, call: HttpCall[m.RunAgentRequest]) -> HttpReply:
        body = call.body

        async def do(run: LeaseState) -> HttpReply:
            done = await self.service.run_agent(run, body.command, body.timeout_s, body.port)
            return HttpReply(200, m.RunAgentReply(result=_values(done)))

        request = RequestedOperation("run_agent", call.digest, body.request_id or "", call)
        try:
            async with asyncio.timeout(body.deadline_s):
                return await self.service.run_operation(body.lease_id, request, do, lambda _: body.timeout_s)
        except TimeoutError:
            return HttpReply(200, m.RunAgentReply(result=None))

    async def interrupt(self, call: HttpCall[m.InterruptRequest]) -> HttpReply:
        self.service.lease_state(call.body.lease_id).interrupted = True
        return HttpReply(200, m.OkReply())

    async def carry_agent_connection(self, call: StreamCall) -> None:
        await self.service.lease_state(call.lease_id).agent_port.carry_next(call)

    async def write_files(self, call: HttpCall[m.WriteFilesRequest]) -> HttpReply:
        async def do(run: LeaseState) -> HttpReply:
            await self.service.require_sandbox(run)[0].write_files(call.body.files, mode=call.body.mode)
            return HttpReply(200, m.OkReply())

        return await self._once(call, "write_files", lambda _: 0.0, do)

    async def read_file(self, call: HttpCall[m.ReadFileRequest]) -> HttpReply:
        async with self._reading(call.body) as sandbox:
            content = await sandbox.read_file(call.body.path, call.body.max_bytes)
        return await asyncio.to_thread(lambda: HttpReply(200, m.ReadFileReply(content=_base64(content))))

    async def read_tree(self, call: HttpCall[m.ReadTreeRequest]) -> HttpReply:
        async with self._reading(call.body) as sandbox:
            found = await sandbox.read_tree(call.body.path, call.body.max_bytes)

        def encode() -> HttpReply:
            return HttpReply(200, m.ReadTreeReply(files={_text(path): _base64(data) for path, data in found.items()}))

        return await asyncio.to_thread(encode)

    @asynccontextmanager
    async def _reading(self, body: m.TimedLeaseRequest) -> AsyncGenerator[Sandbox]:
        """Yield the lease's sandbox for reading, which is neither recorded nor queued behind operations."""
        with self.service.table.operation(body.lease_id):
            sandbox, _ = self.service.require_sandbox(self.service.lease_state(body.lease_id))
            async with asyncio.timeout(body.deadline_s):
                yield sandbox


def _base64(content: bytes) -> str:
    return m.encode_base64(content).decode()


def _text(path: str) -> str:
    """Replace the bytes of a file name that are not UTF-8."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _values(result: CommandResult | GradeResult) -> dict[str, Any]:
    """Convert a result to JSON values; lone surrogates are escaped."""
    return json.loads(json.dumps(asdict(result)))
