"""Messages of longshore's HTTP servers: one model for each request and reply, from which the OpenAPI document is made.

The first eight have the names and shapes of OpenClaw (pool_server.py) and SETA (slot_pool_service); the fields that
longshore adds are optional.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Base64Encoder, BaseModel, ConfigDict, EncodedBytes, Field

from sandbox.http.body_budget import MAX_BODY_BYTES, SMALL_BYTES
from sandbox.pool.leases import MAX_GROUP
from sandbox.pool.settings import COMMAND_TIMEOUT_S
from sandbox.session.files import MAX_FILE_BYTES, MAX_TREE_BYTES

MAX_COMMAND_S, MAX_S = 3600.0, 86_400.0
LEAST_DEADLINE_S = 1.0
ROUTER_SPARE_S, CLIENT_SPARE_S = 5.0, 10.0
"""Seconds beyond a request's deadline for which its router and its client wait for the reply, longer than the pool
server, so that the process closest to the work reports the outcome."""
Name = Annotated[str, Field(min_length=1, max_length=256)]
_MAX_TASK_KEY = 8192
_MAX_REQUEST_ID = 2 * _MAX_TASK_KEY
TaskKey = Annotated[str, Field(min_length=1, max_length=_MAX_TASK_KEY)]
"""OpenClaw's client joins a task's name and its path."""
Seconds = Annotated[float, Field(gt=0, le=MAX_S)]
RequestId = Annotated[
    str | None,
    Field(
        max_length=_MAX_REQUEST_ID,
        description="A request that is repeated with the same id is done once and gets the same reply.",
    ),
]


_BASE64_PIECE = 3 << 18
"""Bytes that are encoded at a time: between two pieces other threads run."""


def encode_base64(data: bytes) -> bytes:
    """Encode as padded standard base64."""
    return b"".join(base64.b64encode(data[at : at + _BASE64_PIECE]) for at in range(0, len(data), _BASE64_PIECE))


def decode_base64(data: bytes) -> bytes:
    """Decode padded standard base64; any other character is an error.  Raises ValueError."""
    size = _BASE64_PIECE // 3 * 4
    if data.find(b"=", 0, -2) >= 0:
        raise ValueError("not standard base64: padding before its end")
    try:
        return b"".join(base64.b64decode(data[at : at + size], validate=True) for at in range(0, len(data), size))
    except binascii.Error as error:
        raise ValueError(f"not standard base64: {error}") from error


class _Base64(Base64Encoder):
    @classmethod
    def decode(cls, data: bytes) -> bytes:
        return decode_base64(data)

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return encode_base64(value)


class ApiMessage(BaseModel):
    """Base of all messages; unknown fields are ignored."""

    most_bytes: ClassVar[int] = MAX_BODY_BYTES
    """Maximum bytes of a body with the message."""
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class AllocateRequest(ApiMessage):
    task_key: TaskKey
    request_id: RequestId = None
    image: Annotated[str, Field(max_length=512, description="A router prefers pool servers that have it.")] = ""


class AllocateReply(ApiMessage):
    ok: Literal[True] = True
    lease_id: str
    reused: bool
    ttl_s: float


class AllocateGroupRequest(ApiMessage):
    task_id: TaskKey
    n_slots: Annotated[int, Field(ge=1, le=MAX_GROUP)]
    request_id: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=_MAX_REQUEST_ID,
            description="Give this request one slot, and reserve the others for requests with other ids.",
        ),
    ] = None
    reserve: Annotated[bool, Field(description="Reserve all of them for requests with ids.")] = False
    image: Annotated[str, Field(max_length=512)] = ""


class SlotAssignment(ApiMessage):
    node_url: str
    slot_id: Annotated[str, Field(description="A lease id.")]


class AllocateGroupReply(ApiMessage):
    ok: Literal[True] = True
    task_id: str
    assignments: list[SlotAssignment]
    ttl_s: float


class ReleaseGroupRequest(ApiMessage):
    task_id: TaskKey


class ReleaseGroupReply(ApiMessage):
    ok: Literal[True] = True
    task_id: str
    released_slots: int


class LeaseRequest(ApiMessage):
    lease_id: Name


class TimedLeaseRequest(LeaseRequest):
    deadline_s: Annotated[
        float | None,
        Field(
            ge=LEAST_DEADLINE_S,
            le=MAX_S,
            description="Seconds that the client waits for the reply; then the request is abandoned, with 504.",
        ),
    ] = None


class OperationRequest(TimedLeaseRequest):
    request_id: RequestId = None


class HeartbeatRequest(LeaseRequest):
    most_bytes = SMALL_BYTES


class CloseRequest(LeaseRequest):
    most_bytes = SMALL_BYTES


class OkReply(ApiMessage):
    ok: Literal[True] = True


class CloseReply(OkReply):
    found: bool


class TaskTimeouts(ApiMessage):
    ensure_image: Seconds | None = None
    reset_session: Seconds | None = None
    close_session: Seconds | None = None
    eval: Seconds | None = None


class ProgramsBody(ApiMessage):
    """An agent's programs; see :class:`sandbox.agent_programs.AgentPrograms`."""

    folder: Annotated[str, Field(max_length=256)]
    memory_mb: Annotated[int, Field(ge=0, le=1 << 20)]
    pids: Annotated[int, Field(ge=0, le=1 << 16)]


class ResetRequest(OperationRequest):
    task_meta: Annotated[
        dict[str, Any],
        Field(description="task_name, task_path below the server's data set, instruction; or task: a whole task."),
    ]
    run_ctx: dict[str, Any] | None = None
    task_timeouts: TaskTimeouts | None = None
    agent_programs: Annotated[
        ProgramsBody | None, Field(description="Programs that the sandbox has; /status lists those of the server.")
    ] = None


class ResetReply(OkReply):
    user_msg: str
    tool_schemas: list[dict[str, Any]]


class ToolCallBody(ApiMessage):
    name: Name
    arguments: dict[str, Any] | None = None


class ExecToolRequest(OperationRequest):
    tool_call: ToolCallBody


class EndableReply(OkReply):
    ended: Annotated[str, Field(description="sandbox_destroyed: the agent ended its own sandbox; else empty.")] = ""


class ExecToolReply(EndableReply):
    observation: str
    exit_code: int | None = None
    timed_out: bool = False
    ms: float = 0.0


class EvaluateRequest(OperationRequest):
    timeout_s: Annotated[Seconds | None, Field(description="Time for the tests alone; else the task's.")] = None
    commands: Annotated[
        list[str], Field(description="Commands of the agent's program, which are read for signs of cheating.")
    ] = []


class EvaluateReply(EndableReply):
    score: Annotated[float, Field(description="Passed tests ÷ all tests.")]
    result: dict[str, Any] | None = None


class RunCommandRequest(OperationRequest):
    command: Annotated[str, Field(max_length=1 << 20)]
    timeout_s: Annotated[float, Field(gt=0, le=MAX_COMMAND_S)] = COMMAND_TIMEOUT_S


class RunCommandReply(OkReply):
    result: dict[str, Any]


class RunAgentRequest(OperationRequest):
    deadline_s: Annotated[
        float | None,
        Field(
            ge=LEAST_DEADLINE_S,
            le=MAX_S,
            description="Seconds after which the reply has no result if the program goes on: send the request again.",
        ),
    ] = None
    command: Annotated[str, Field(max_length=1 << 20)]
    timeout_s: Annotated[Seconds, Field(description="Maximum, unless it is interrupted before.")]
    port: Annotated[
        int,
        Field(ge=1024, le=65535, description="Port of the sandbox's loopback that /agent_connection carries."),
    ]


class RunAgentReply(OkReply):
    result: Annotated[dict[str, Any] | None, Field(description="None while the program goes on.")]


class InterruptRequest(LeaseRequest):
    most_bytes = SMALL_BYTES


class BeginStepRequest(OperationRequest):
    step: Annotated[int, Field(ge=0, description="Number of a step of the task, from 0.")]


class WriteFilesRequest(OperationRequest):
    files: dict[str, Annotated[bytes, EncodedBytes(encoder=_Base64)]]
    mode: Annotated[int, Field(ge=0, le=0o7777)] = 0o644


class ReadFileRequest(TimedLeaseRequest):
    most_bytes = SMALL_BYTES
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    max_bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)] = MAX_FILE_BYTES


class ReadFileReply(OkReply):
    content: Annotated[str, Field(description="Base64.")]


class ReadTreeRequest(TimedLeaseRequest):
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    max_bytes: Annotated[int, Field(ge=0, le=MAX_TREE_BYTES)] = MAX_TREE_BYTES


class ReadTreeReply(OkReply):
    files: Annotated[dict[str, str], Field(description="Paths relative to the folder's → base64.")]


class TaskRuns(ApiMessage):
    active_runs: int


class PoolStatus(ApiMessage):
    max_tasks: int
    active_tasks: int
    max_runs_per_task: int
    total_active_runs: int
    pending_closes: int
    tasks: dict[str, TaskRuns]
    groups: Annotated[dict[str, int], Field(description="Slots that each group holds.")]
    reserved: Annotated[dict[str, int], Field(description="Those of them that are reserved for later requests.")]
    images: list[str]
    agent_programs: Annotated[list[str], Field(description="Those that a reset can ask for.")]
    can_run_agents: Annotated[bool, Field(description="Whether the server can listen in its sandboxes.")]
    wait_s: float
    draining: bool


class PoolStatusReply(OkReply):
    pool: PoolStatus


class ErrorReply(ApiMessage):
    """A reply with an error status."""

    ok: Literal[False] = False
    error: str
    code: str
    errno: int | None = None


class HttpError(Exception):
    """An exception that becomes an :class:`ErrorReply`; ``retry_after_s`` becomes a header."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after_s: float = 0.0, errno: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s, self.errno = status, code, retry_after_s, errno

    def reply(self) -> HttpReply:
        """Return the reply."""
        return HttpReply(self.status, ErrorReply(error=str(self), code=self.code, errno=self.errno), self.retry_after_s)


class HttpReply:
    """A status and a body that can be sent again."""

    __slots__ = ("body", "retry_after_s", "status")

    def __init__(self, status: int, message: ApiMessage | bytes, retry_after_s: float = 0.0) -> None:
        self.status, self.retry_after_s = status, retry_after_s
        self.body = message if isinstance(message, bytes) else message.model_dump_json().encode()

    def record(self) -> dict[str, Any]:
        """Return the reply as JSON values for the journal."""
        return {"status": self.status, "body": self.body.decode(), "retry_after_s": self.retry_after_s}

    @classmethod
    def recorded(cls, record: dict[str, Any]) -> HttpReply:
        """Reverse :meth:`record`."""
        return cls(int(record["status"]), str(record["body"]).encode(), float(record["retry_after_s"]))

    def value(self) -> dict[str, Any]:
        """Decode the body."""
        return json.loads(self.body)
