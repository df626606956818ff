"""The record of one published harness.  Pure; adding a harness is adding a record to the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox.agent_programs import AGENT_PROGRAMS_FOLDER

_FORMAT = 3
"""Format number of installed folders; increase it when the same record produces another folder."""
PACKAGES_UNTIL = "2026-11-29T00:00:00Z"
"""No package that was published later is installed, so that a harness's dependencies are the same each time."""


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A package of npm's registry."""

    name: str
    version: str
    node: bool = False
    """True for a script of Node, which is then installed beside it, and not a program of its own."""


@dataclass(frozen=True, slots=True)
class PypiPackage:
    """A package of PyPI, which is installed with a Python of its own."""

    name: str
    version: str
    extra_requirements: tuple[str, ...] = ()
    """Requirements that the package leaves open, each with its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHarness:
    """A harness, and what it needs in order to solve a task unattended through the gateway.

    ``$`` variables in ``environment`` and ``files`` are those of :func:`actors.rollout.harness.harness_environment`,
    and ``$HARNESS_HOME``, its folder in the sandbox; ``$$`` is a dollar sign.
    """

    name: str
    """Value of ``agent.harness``."""
    title: str
    package: NpmPackage | PypiPackage
    program: str
    """Path or glob of its program in the installed folder, which becomes ``bin/NAME`` there."""
    command: str
    """Shell command that solves the task that it reads on standard input (it is in ``$LONGSHORE_INSTRUCTION`` too);
    ``bin`` of the installed folder is in ``$HARNESS_BIN``."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its settings files, by their path in ``$HARNESS_HOME``."""
    machine_programs: tuple[str, ...] = ()
    """Programs of this machine that it needs beside it, in ``$HARNESS_BIN``."""
    prompt_tokens: int
    """Tokens of its own prompt and tools, at three characters a token."""
    context_tokens: int
    """``agent.context_tokens`` that leaves it room to work."""
    temperature: float | None = None
    """The temperature that its requests ask for; None if they leave it to the policy."""
    memory_mb: int
    """Memory that it needs itself, in addition to the task's."""
    pids: int = 64
    """Processes and threads that it needs itself, in addition to the task's."""

    @property
    def folder(self) -> str:
        """Path of the installed folder in longshore's home."""
        facts = (_FORMAT, PACKAGES_UNTIL, self.package, self.program, *self.machine_programs)
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:8]
        return f"{AGENT_PROGRAMS_FOLDER}/{self.name}-{self.package.version}-{digest}"
