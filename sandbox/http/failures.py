"""Maps exceptions to HTTP statuses and codes; the client maps the codes back to the same exceptions."""

from __future__ import annotations

from protocol.errors import InfraError, UserError
from sandbox.errors import (
    BuildError,
    SandboxDestroyed,
    SandboxLost,
    SandboxStartError,
    SandboxVanished,
    ShellBusy,
    TaskFault,
)
from sandbox.http.messages import HttpError
from sandbox.pool.leases import GroupConflict, GroupTooLarge, SlotsExhausted, UnknownLease

DESTROYED, VANISHED, LOST = "SANDBOX_DESTROYED", "SANDBOX_VANISHED", "SANDBOX_LOST"
START_FAILED, UNKNOWN_LEASE, FILE_ERROR = "SANDBOX_START_FAILED", "UNKNOWN_LEASE", "FILE_ERROR"
SHELL_BUSY, NOT_RESET, REUSED_ID, UNKNOWN_OUTCOME = "SHELL_BUSY", "NOT_RESET", "REQUEST_ID_REUSED", "OUTCOME_UNKNOWN"
BAD_REQUEST, TASK_REFUSED, DEADLINE = "BAD_REQUEST", "TASK_REFUSED", "DEADLINE"
INTERNAL, DRAINING, GROUP_TOO_LARGE = "INTERNAL", "DRAINING", "GROUP_TOO_LARGE"
NOT_BEGUN, INFRA_FAILED = "NOT_BEGUN", "INFRA_FAILED"
BUILD_FAILED, TASK_FAULT = "BUILD_FAILED", "TASK_FAULT"
UNCERTAIN_CODES = frozenset({UNKNOWN_OUTCOME, DEADLINE, INTERNAL, LOST})
"""Codes of failures after which the operation may have been done, in whole or in part, in a sandbox that may still
exist."""
LEASE_ERROR_STATUSES = (401, 404, 409, 410, 422, 503, 504)
"""Error statuses of a request about a lease."""
_RETRY_S = 2.0
_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownLease, 404, UNKNOWN_LEASE),
    (GroupConflict, 409, "GROUP_CONFLICT"),
    (GroupTooLarge, 422, GROUP_TOO_LARGE),
    (ShellBusy, 409, SHELL_BUSY),
    (SandboxDestroyed, 410, DESTROYED),
    (SandboxVanished, 410, VANISHED),
    (SandboxLost, 410, LOST),
    (BuildError, 422, BUILD_FAILED),
    (TaskFault, 422, TASK_FAULT),
    (SandboxStartError, 503, START_FAILED),
    (UserError, 422, TASK_REFUSED),
    (InfraError, 503, INFRA_FAILED),
    (TimeoutError, 504, DEADLINE),
    (OSError, 422, FILE_ERROR),
    (ValueError, 400, BAD_REQUEST),
)
"""Status and code of each exception; the first class that matches counts."""


def to_http_error(error: Exception) -> HttpError:
    """Return the reply to a request that failed. An unexpected exception is INTERNAL."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, SlotsExhausted):
        return HttpError(429, error.code, str(error), retry_after_s=error.retry_after_s)
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return HttpError(
                status,
                code,
                str(error) or "not done within the deadline",
                retry_after_s=_RETRY_S if status == 503 else 0.0,
                errno=error.errno if isinstance(error, OSError) else None,
            )
    return HttpError(500, INTERNAL, f"the server has a defect ({type(error).__name__}): see its log")
