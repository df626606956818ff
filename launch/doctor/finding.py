"""Findings of checks: severity, message and fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from protocol.errors import UserError
from protocol.events import JsonValue
from sandbox.tasks.task import TaskError


class CheckName(StrEnum):
    DOCKER = "docker"
    CGROUP = "cgroup"
    ADDRESS_POOLS = "address pools"
    DISK = "disk"
    NETWORK = "network"
    INODES = "inodes"
    FILE_SYSTEM = "file system"
    SHM = "/dev/shm"  # noqa: S108  a name for people
    PORTS = "ports"
    ULIMITS = "ulimits"
    CLOCK = "clock"
    GPU = "gpu"
    NCCL = "nccl"
    VERSIONS = "versions"
    RECIPE = "recipe"
    ANSWER = "answer"
    """Whether another machine answers at all."""


class FindingLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """A run works, but worse than it could."""
    FAILED = "failed"
    """A run would not start, or not finish."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check on one machine; unless it is OK, ``fix`` says what to do."""

    check: CheckName
    level: FindingLevel
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}" if self.fix else self.message

    def as_json(self) -> dict[str, JsonValue]:
        return {"check": self.check.value, "level": self.level.value, "message": self.message, "fix": self.fix}


def ok(check: CheckName, message: str) -> Finding:
    return Finding(check, FindingLevel.OK, message)


def warning(check: CheckName, message: str, fix: str) -> Finding:
    return Finding(check, FindingLevel.WARNING, message, fix)


def failed(check: CheckName, message: str, fix: str) -> Finding:
    return Finding(check, FindingLevel.FAILED, message, fix)


def finding_from_error(check: CheckName, error: UserError) -> Finding:
    """Return an error as a finding; its fix is the part after the last colon."""
    if isinstance(error, TaskError):
        return failed(check, f"{error.folder} {error.what}", error.why)
    message, colon, fix = str(error).rpartition(": ")
    return failed(check, message, fix) if colon else failed(check, str(error), "fix that and run this again")


def require_no_failure(findings: Iterable[Finding]) -> None:
    """Raise UserError for the first finding that prevents a run from starting."""
    for each in findings:
        if each.level is FindingLevel.FAILED:
            raise UserError(str(each))
