"""What a task is, whatever format it was written in.

A task knows nothing of Docker: it is text and bytes.  The harness puts ``files`` into the sandbox and runs
``setup`` before the agent's first turn; ``tests`` enter the sandbox only for grading, ``solution`` never.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from protocol.errors import UserError

BASE_IMAGE = ""
"""The value of :attr:`Task.image` that stands for the pool's own base image."""


class TaskError(UserError):
    """A task folder that cannot be used.  The message names the folder, what is wrong, and why it matters."""

    def __init__(self, folder: Path, what: str, why: str) -> None:
        self.folder, self.what, self.why = folder, what, why
        super().__init__(f"task {folder}: {what} ({why})")


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
    solution: str = ""
    """The oracle's shell script."""
    workdir: str = "/app"
    agent_timeout_s: float = 360.0
    test_timeout_s: float = 60.0
    memory_mb: int = 256
    pids: int = 64
    cpus: float = 1.0
