"""The containers of a task: how an image is built, what runs beside the agent's, and the container of tests."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import Field, with_config

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.default_limits import CPUS, MEMORY_MB, SERVICE_PIDS, SHM_MB
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.strict_values import STRICT


@with_config(STRICT)
@dataclass(frozen=True)
class ImageBuild:
    """A build context. Equal contexts have equal digests, whatever their source; it has no slots, to keep its own."""

    files: dict[str, bytes]
    """Contents by path relative to the context."""
    dockerfile: str = "Dockerfile"
    executable: frozenset[str] = frozenset()
    """Paths of ``files`` that are executable."""
    args: dict[str, str] = field(default_factory=dict[str, str])
    target: str = ""
    """Stage to build; empty for the last one."""
    modified_s: Annotated[dict[str, int], Field(exclude=True)] = field(default_factory=dict[str, int], compare=False)
    """Unix times, by path, of the last change of ``files``; one that is not named is as new as the build.  Contexts
    that differ only in it are equal, and share an image; a request leaves it out."""

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits, the digest of the whole context, which takes its time once."""
        parts = [self.dockerfile.encode(), self.target.encode()]
        parts += [text.encode() for pair in sorted(self.args.items()) for text in pair]
        for path, content in sorted(self.files.items()):
            parts += [path.encode(), b"x" if path in self.executable else b"-", content]
        whole = hashlib.sha256()
        for part in parts:
            whole.update(len(part).to_bytes(8, "big"))
            whole.update(part)
        return whole.hexdigest()


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder that several containers of a task share, at first with what the first of them has there."""

    volume: str
    """Name of what is shared; letters, digits, ``-``, ``_``, ``.`` only."""
    target: str
    """Absolute path in the container."""
    read_only: bool = False


RESTART = re.compile(r"(always|on-failure(:[1-9][0-9]{0,8})?)?")
"""Matches :attr:`TaskService.restart`."""


class ServiceCondition(StrEnum):
    """A service that depends on another starts once this condition holds of the other."""

    STARTED = "started"
    HEALTHY = "healthy"
    """Its health check succeeds; without one it is enough that it has started."""
    COMPLETED = "completed"
    """It has ended with exit code 0."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class TaskService:
    """Another container next to the agent's, on their private network under its own name."""

    name: str
    image: str = ""
    build: ImageBuild | None = None
    command: tuple[str, ...] = ()
    """Arguments of the entrypoint; empty for the image's own, if the entrypoint is the image's too."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    healthcheck: str | None = ""
    """Shell command that must exit with 0 before the agent starts; empty for the image's own check. Without a check,
    and for None, a running service is enough."""
    memory_mb: int = MEMORY_MB
    cpus: float = CPUS
    shm_mb: int = SHM_MB
    """Size of ``/dev/shm``."""
    tmpfs: tuple[str, ...] = ()
    """Folders in memory: absolute paths, with ``:options`` of mount or without."""
    volumes: tuple[SharedFolder, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    """None for the image's own."""
    user: str = ""
    """User of its processes, as in Docker: a name or a number, with ``:group`` or without; empty for the image's own.
    """
    workdir: str = ""
    """Directory in which it starts; empty for the image's own."""
    ulimits: tuple[ProcessLimit, ...] = ()
    """Limits of each process, in place of a sandbox's own."""
    hostname: str = ""
    """Its own host name; empty for the name under which the others reach it."""
    aliases: tuple[str, ...] = ()
    """Other names under which it is reached."""
    depends_on: dict[str, ServiceCondition] = field(default_factory=dict[str, ServiceCondition])
    """It starts once these conditions hold of other services, by their names."""
    ends: bool = False
    """It must end with exit code 0 before the agent starts; if false, it must still run then."""
    pids: int = SERVICE_PIDS
    """Maximum processes and threads."""
    capabilities: tuple[str, ...] = BASE_CAPABILITIES
    """Linux capabilities of root, of :data:`~sandbox.capabilities.SERVICE_CAPABILITIES`."""
    read_only: bool = False
    """Nothing can be changed in its root file system; volumes and folders in memory are others."""
    stdin_open: bool = False
    """Its standard input stays open, without anything to read."""
    tty: bool = False
    """It has a terminal."""
    restart: str = ""
    """When it is started again after its end: ``always``, ``on-failure``, or ``on-failure:N`` for at most N times;
    empty for never."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class TestsEnvironment:
    """The clean container of tests: of an image of their own, which holds them in ``/tests``, or of the task's."""

    __test__ = False
    image: str = ""
    build: ImageBuild | None = None
    """Build of the image; replaces ``image``."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables, instead of the task's ``env``."""
    workdir: str = ""
    """Directory in which the tests start; empty for the image's."""
    memory_mb: int | None = None
    """Like the next two: None for the task's own limit."""
    cpus: float | None = None
    storage_mb: int | None = None

    @property
    def has_image(self) -> bool:
        """True if the image is the tests' own, not the task's."""
        return bool(self.image or self.build)


@with_config(STRICT)
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
