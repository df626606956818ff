"""Settings of the run as a whole: ``[run]`` and ``[proof]``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from launch.settings.run_directory import RunDirectorySettings
from protocol.settings import ConfigSection, PositiveInt, Share
from protocol.staleness import AdmissionMode


class NegativeControl(StrEnum):
    """A run that must not learn, so that any improvement is chance."""

    NONE = "none"
    """A real run."""
    LR0 = "lr0"
    """Learning rate 0."""
    SHUFFLED = "shuffled"
    """Rewards shuffled within the batch, and no group chosen by its rewards."""


class RunSettings(RunDirectorySettings):
    steps: PositiveInt = 24
    """Number of optimizer steps."""
    mode: AdmissionMode = AdmissionMode.ASYNC
    """Limit of rollout ahead of training; the modes differ only in this admission limit."""
    negative_control: NegativeControl = NegativeControl.NONE
    """Turns the run into a negative control: ``lr0`` trains with learning rate 0, ``shuffled`` with rewards shuffled
    within the batch."""
    unresponsive_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Seconds without an answer after which a buffer, scheduler, worker or engine actor is killed and restarted."""
    stall_timeout_s: Annotated[float, Field(ge=0)] = 600.0
    """Seconds without progress after which the stacks of all processes are written to the logs, with a line
    that shows which component waits for which; nothing is ended.  0 for never."""


class ProofSettings(ConfigSection):
    """Requirements of ``--proof`` on the run, beyond a significant difference."""

    min_improvement: Share = 0.0
    """Minimum rise of pass@1."""
    min_final_pass_at_1: Share = 0.0
    """Minimum pass@1 at the end."""
