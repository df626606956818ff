"""What a check found: how bad it is, what was seen, and what to do about it."""

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
    """Of another machine, to being asked at all."""


class FindingLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """A run goes on, worse than it could."""
    FAILED = "failed"
    """A run would not start, or not end."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one check on one machine.  ``fix`` is what to do next; each finding but OK has one."""

    check: CheckName
    level: FindingLevel
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}" if self.fix else self.message

    def as_json(self) -> dict[str, JsonValue]:
        return {"check": self.check.value, "level": self.level.value, "said": self.message, "fix": self.fix}


def ok(check: CheckName, said: str) -> Finding:
    return Finding(check, FindingLevel.OK, said)


def warning(check: CheckName, said: str, fix: str) -> Finding:
    return Finding(check, FindingLevel.WARNING, said, fix)


def failed(check: CheckName, said: str, fix: str) -> Finding:
    return Finding(check, FindingLevel.FAILED, said, fix)


def finding_from_error(check: CheckName, error: UserError) -> Finding:
    """An error's line ends with what to do, behind a colon."""
    if isinstance(error, TaskError):
        return failed(check, f"{error.folder} {error.what}", error.why)
    said, colon, fix = str(error).rpartition(": ")
    return failed(check, said, fix) if colon else failed(check, str(error), "mend that and run this again")


def require_no_failure(findings: Iterable[Finding]) -> None:
    """Raises UserError for the first that keeps a run from starting."""
    for each in findings:
        if each.level is FindingLevel.FAILED:
            raise UserError(str(each))
