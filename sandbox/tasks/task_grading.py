"""How a task is graded: where its tests run, what is recorded before them, and how their results are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import with_config

from sandbox.tasks.strict_values import STRICT


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


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class CollectCommand:
    """Records in files what would be lost with the agent's processes; its failure changes nothing else."""

    command: str
    """Shell command that runs in ``workdir`` when the agent has ended, beside its processes and before the tests."""
    timeout_s: float = 60.0
    user: str = ""
    """As in Docker; empty for the container's own."""


class StepsReward(StrEnum):
    """The reward of a task of several steps."""

    MEAN = "mean"
    """The mean over the steps that were played."""
    FINAL = "final"
    """That of the last step that was played."""
