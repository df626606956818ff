"""The task model, independent of the format in which a task is written.

A task knows nothing of Docker: it is text and bytes. The harness writes ``files`` into the sandbox and runs ``setup``
before the agent's first turn; ``tests`` are written into the sandbox only for grading, ``solution`` never.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import ConfigDict, with_config

from protocol.errors import UserError
from sandbox.default_limits import CPUS, MEMORY_MB, PIDS, SHM_MB

_STRICT = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
"""When one of these is read, an unknown key is an error; in JSON, bytes are URL-safe base64."""

BASE_IMAGE = ""
"""Value of :attr:`Task.image` that stands for the pool's own base image."""


_HARBOR_LOGS = ("/logs/agent", "/logs/artifacts", "/logs/verifier")


class TaskError(UserError):
    """A task folder cannot be used. The message names the folder, the problem, and why it matters."""

    def __init__(self, folder: Path, what: str, why: str) -> None:
        self.folder, self.what, self.why = folder, what, why
        super().__init__(f"task {folder}: {what} ({why})")


class NetworkMode(StrEnum):
    """The network access of one phase of a task."""

    NONE = "none"
    PROXY = "proxy"
    """The allowed hosts, through the pool's caching proxy."""
    FULL = "full"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class TaskNetwork:
    """The network access of each phase."""

    build: NetworkMode = NetworkMode.FULL
    agent: NetworkMode = NetworkMode.NONE
    verify: NetworkMode = NetworkMode.NONE
    allowed_hosts: tuple[str, ...] = ()
    """Hosts for phases with ``proxy``: names, ``*.example.org`` for subdomains; ports 80 and 443 unless given."""

    @property
    def is_offline(self) -> bool:
        """True if neither the agent nor the tests have a network; the build may have one."""
        return self.agent is NetworkMode.NONE and self.verify is NetworkMode.NONE


OFFLINE = TaskNetwork()
ONLINE = TaskNetwork(agent=NetworkMode.FULL, verify=NetworkMode.FULL)


class GradingLevel(StrEnum):
    """Container in which the tests run.

    From ``same`` to ``sibling`` each level is further out of the agent's reach than the previous one; ``live`` is the
    nearest.
    """

    SAME = "same"
    """The agent's container, once all other processes in it are dead."""
    COMMIT = "commit"
    """A new container of a copy of the agent's."""
    ARTIFACTS = "artifacts"
    """A clean container of the task's image, with only the declared artifacts."""
    SIBLING = "sibling"
    """A second container with the live container's network and a read-only copy of its files."""
    LIVE = "live"
    """The agent's container, beside its processes, which keep running."""


class ResultsFormat(StrEnum):
    """The form in which a test script prints its results; the names are those of Terminal-Bench's parsers."""

    PYTEST = "pytest"
    """A summary of pytest, if no report file says more."""
    SWEBENCH = "swebench"
    """One word between two lines; so are the next two."""
    SWEPERF = "sweperf"
    MLEBENCH = "mlebench"
    SWELANCER = "swelancer"
    """A phrase."""


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class ImageBuild:
    """A build context. Equal contexts have equal digests, whatever their source."""

    files: dict[str, bytes]
    """Contents by path relative to the context."""
    dockerfile: str = "Dockerfile"
    executable: frozenset[str] = frozenset()
    """Paths of ``files`` that are executable."""
    args: dict[str, str] = field(default_factory=dict[str, str])
    target: str = ""
    """Stage to build; empty for the last one."""

    @property
    def digest(self) -> str:
        """Return 64 hexadecimal digits, the digest of the whole context."""
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
    """Another container next to the agent's, on their private network under its own name."""

    name: str
    image: str = ""
    build: ImageBuild | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    healthcheck: str = ""
    """Shell command that must exit with 0 before the agent starts; if empty, a running service is enough."""
    memory_mb: int = MEMORY_MB
    cpus: float = CPUS
    shm_mb: int = SHM_MB
    """Size of ``/dev/shm``."""
    tmpfs: tuple[str, ...] = ()
    """Folders in memory: absolute paths, with ``:options`` of mount or without."""


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class TestsEnvironment:
    """The clean container of tests that have an image of their own, which holds them in ``/tests``."""

    __test__ = False
    image: str = ""
    build: ImageBuild | None = None
    """Build of the image; replaces ``image``."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables, instead of the task's ``env``."""
    workdir: str = ""
    """Directory in which the tests start; empty for the image's."""


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class TaskHealthcheck:
    """Says when the agent's container is ready, with the semantics of Docker's HEALTHCHECK."""

    command: str
    """Shell command that exits with 0 once the container is ready."""
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    """Seconds from the start in which failures do not count."""
    start_interval_s: float = 5.0
    """Seconds between two checks in the start period."""
    retries: int = 3
    """Failures in a row after which the sandbox cannot be used."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem for a terminal agent.  Immutable; equal by value."""

    id: str
    """Unique in its data set; letters, digits, ``-``, ``_``, ``.`` only: it names files and containers."""
    instruction: str
    """The agent's instruction."""
    family: str = ""
    """Kind of task, by which results are grouped."""
    image: str = BASE_IMAGE
    setup: str = ""
    """Shell script, run in ``workdir`` by the harness before the agent starts; empty for none."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by absolute path in the sandbox. Owned by root, mode 0644; missing folders are created."""
    tests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by path relative to ``/tests``, written only for grading."""
    run_tests: str = ""
    """Shell script that runs the tests in ``workdir`` with ``TEST_DIR=/tests`` and prints their results."""
    results_format: ResultsFormat = ResultsFormat.PYTEST
    expected_tests: tuple[str, ...] = ()
    """Names that the summary must contain: a missing one counts as failed. If empty, the summary's names count."""
    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Weight of each test in the weighted score, by name; a test that is not named has weight 1."""
    answer: str = ""
    r"""Answer that the agent's last reply must give in ``\\boxed{…}``; if not empty, it is graded instead of tests.
    """
    reports: tuple[str, ...] = ()
    """Absolute paths where the tests leave CTRF, JUnit, ``reward.txt`` or ``reward.json`` files."""
    solution: str = ""
    """Shell script of the oracle."""
    solution_files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents by path relative to ``/solution``, only for the oracle."""
    foils: dict[str, str] = field(default_factory=dict[str, str])
    """Shell scripts, by name, of attempts that must not get the full score: near misses and cheats, which prove the
    tests."""
    build: ImageBuild | None = None
    """Build of the image; replaces ``image``."""
    services: tuple[TaskService, ...] = ()
    network: TaskNetwork = TaskNetwork()
    grading: GradingLevel = GradingLevel.SAME
    artifacts: tuple[str, ...] = ()
    """Absolute paths that level ``artifacts`` copies into the clean image."""
    tests_environment: TestsEnvironment | None = None
    """Container of the tests at level ``artifacts``; None for one of the task's image."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the agent's shell and of the tests, which override the image's."""
    agent_env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables that override ``env`` for the agent alone."""
    test_env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables that override ``env`` for the tests alone."""
    solution_env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the oracle."""
    agent_user: str = ""
    """User of the agent's processes, as in Docker: a name or a number, with ``:group`` or without; empty for the
    image's own."""
    tests_user: str = ""
    """User of the tests; empty for the image's own."""
    healthcheck: TaskHealthcheck | None = None
    """Must succeed before the agent starts."""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    """Other fields of the format (author, difficulty, tags …), kept for writing it again."""
    workdir: str = "/app"
    agent_timeout_s: float = 360.0
    test_timeout_s: float = 60.0
    build_timeout_s: float = 600.0
    memory_mb: int = MEMORY_MB
    pids: int = PIDS
    cpus: float = CPUS
    storage_mb: int = 2048
    """Disk space that the agent may use, limited by the best means that the host has."""
    shm_mb: int = SHM_MB
    """Size of ``/dev/shm``."""
    tmpfs: tuple[str, ...] = ()
    """Folders in memory: absolute paths, with ``:options`` of mount or without."""

    @property
    def log_folders(self) -> tuple[str, ...]:
        """Folders of logs that exist, writable by everybody, when the agent starts: Harbor mounts them."""
        return _HARBOR_LOGS if any(each.startswith("/logs/verifier/") for each in self.reports) else ()

    @property
    def gradable(self) -> bool:
        """True if there are tests or an answer; not every row of a data set has them."""
        return bool(self.run_tests or self.answer)
