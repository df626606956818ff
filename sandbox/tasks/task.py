"""What a task is, whatever format it was written in.

A task knows nothing of Docker: it is text and bytes.  The harness puts ``files`` into the sandbox and runs
``setup`` before the agent's first turn; ``tests`` enter the sandbox only for grading, ``solution`` never.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import ConfigDict, with_config

from protocol.errors import UserError

_STRICT = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
"""Where one of these is read, an unknown key is an error; in JSON, bytes are URL-safe base64."""

BASE_IMAGE = ""
"""The value of :attr:`Task.image` that stands for the pool's own base image."""


class TaskError(UserError):
    """A task folder that cannot be used.  The message names the folder, what is wrong, and why it matters."""

    def __init__(self, folder: Path, what: str, why: str) -> None:
        self.folder, self.what, self.why = folder, what, why
        super().__init__(f"task {folder}: {what} ({why})")


class NetworkMode(StrEnum):
    """What a phase of a task may reach."""

    NONE = "none"
    PROXY = "proxy"
    """The allowed hosts, through the pool's caching proxy."""
    FULL = "full"


class Capability(StrEnum):
    """What root may do in a task's container beyond what it may in each, where the task asks for it."""

    SYS_CHROOT = "SYS_CHROOT"
    SETFCAP = "SETFCAP"
    """File capabilities: packages that set them on what they install."""


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class TaskNetwork:
    """What each phase may reach."""

    build: NetworkMode = NetworkMode.FULL
    agent: NetworkMode = NetworkMode.NONE
    verify: NetworkMode = NetworkMode.NONE
    allowed_hosts: tuple[str, ...] = ()
    """Where a phase is ``proxy``: host names, ``*.example.org`` for all below one; without a port 80 and 443."""

    @property
    def is_offline(self) -> bool:
        """Neither the agent nor the tests reach anything; the build may."""
        return self.agent is NetworkMode.NONE and self.verify is NetworkMode.NONE


class GradingLevel(StrEnum):
    """Where the tests run; each level is further from the agent's reach than the one before."""

    SAME = "same"
    """In the agent's container, once everything else in it is dead."""
    COMMIT = "commit"
    """In a new container of a copy of the agent's."""
    ARTIFACTS = "artifacts"
    """In a clean container of the task's image, with the declared artifacts only."""
    SIBLING = "sibling"
    """Beside the live container: its network and a read-only copy of its files."""


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class ImageBuild:
    """A build context.  Equal contexts have equal digests, wherever they came from."""

    files: dict[str, bytes]
    """Path relative to the context → content."""
    dockerfile: str = "Dockerfile"
    executable: frozenset[str] = frozenset()
    """Paths of ``files`` that are executable."""
    args: dict[str, str] = field(default_factory=dict[str, str])
    target: str = ""
    """Stage to build; empty for the last one."""

    @property
    def digest(self) -> str:
        """64 hexadecimal digits over all of it."""
        parts = [self.dockerfile.encode(), self.target.encode()]
        parts += [text.encode() for pair in sorted(self.args.items()) for text in pair]
        for path, content in sorted(self.files.items()):
            parts += [path.encode(), b"x" if path in self.executable else b"-", content]
        whole = hashlib.sha256()
        for part in parts:
            whole.update(len(part).to_bytes(8, "big") + part)
        return whole.hexdigest()


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class TaskService:
    """One more container beside the agent's, on their private network under its own name."""

    name: str
    image: str = ""
    build: ImageBuild | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    healthcheck: str = ""
    """Shell command that must exit 0 before the agent starts; empty: running is enough."""
    memory_mb: int = 256
    cpus: float = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """One problem for a terminal agent.  Immutable; equal by value."""

    id: str
    """Unique in its data set; letters, digits, ``-``, ``_``, ``.`` only: it names files and containers."""
    instruction: str
    """What the agent is told."""
    family: str = ""
    """Which kind of task this is: results are reported by family."""
    image: str = BASE_IMAGE
    setup: str = ""
    """Shell script, run in ``workdir`` by the harness before the agent starts; empty for none."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Absolute path in the sandbox → content.  Owned by root, mode 0644; missing folders are made."""
    tests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Path relative to ``/tests`` → content, brought in at grading and not before."""
    run_tests: str = ""
    """Shell script that runs the tests in ``workdir`` with ``TEST_DIR=/tests`` and prints a pytest summary."""
    expected_tests: tuple[str, ...] = ()
    """Names that the summary must contain: one that is missing counts as failed.  Empty: whatever the summary names."""
    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Test name → its weight in the weighted score; a test that is not named weighs 1."""
    answer: str = ""
    """What the agent's last reply has to give in ``\\boxed{…}``: graded in place of tests, where it is not empty."""
    reports: tuple[str, ...] = ()
    """Absolute paths where the tests leave CTRF, JUnit, ``reward.txt`` or ``reward.json`` files."""
    solution: str = ""
    """The oracle's shell script."""
    solution_files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Path relative to ``/solution`` → content, for the oracle only."""
    foils: dict[str, str] = field(default_factory=dict[str, str])
    """Name → shell script of an attempt that must not score in full: near misses and cheats, on which its tests are
    proved."""
    build: ImageBuild | None = None
    """How to make the image, in place of ``image``."""
    services: tuple[TaskService, ...] = ()
    network: TaskNetwork = TaskNetwork()
    grading: GradingLevel = GradingLevel.SAME
    artifacts: tuple[str, ...] = ()
    """Absolute paths that level ``artifacts`` carries into the clean image."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Of the agent's shell and of the tests, over the image's own."""
    capabilities: tuple[Capability, ...] = ()
    """Beside :data:`CAPABILITIES`."""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    """What the format says beyond this (author, difficulty, tags …), kept for its writer."""
    workdir: str = "/app"
    agent_timeout_s: float = 360.0
    test_timeout_s: float = 60.0
    build_timeout_s: float = 600.0
    memory_mb: int = 256
    pids: int = 64
    cpus: float = 1.0
    storage_mb: int = 2048
    """Disk that the agent may fill, bounded by the best means the host has."""

    @property
    def gradable(self) -> bool:
        """Not every row of a data set says how."""
        return bool(self.run_tests or self.answer)
