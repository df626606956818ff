"""Settings of when training ends: ``[stop]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from protocol.settings import ConfigSection, CountInt


class StopSettings(ConfigSection):
    """Limits that end a run before ``run.steps``; usage counts over all starts of the run."""

    after_steps: CountInt = 0
    """Number of optimizer steps after which the run stops, while ``run.steps`` still sets the learning-rate schedule; 0
    for no limit."""
    after_tokens: CountInt = 0
    """Number of tokens sampled during training after which the run stops; 0 for no limit."""
    after_trajectories: CountInt = 0
    """Number of acknowledged trajectories after which the run stops; 0 for no limit."""
    after_hours: Annotated[float, Field(ge=0)] = 0.0
    """Hours of training after which the run stops; 0 for no limit."""
    after_epochs: CountInt = 0
    """Number of passes over the training tasks after which the run stops, counted as if no group were dropped; tasks at
    the end of a pass that do not fill a step are skipped.  0 for no limit."""
