"""Settings of when training ends: ``[stop]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from protocol.settings import ConfigSection, CountInt


class StopSettings(ConfigSection):
    """Limits that end a run before ``run.steps``; usage counts over all attempts of the run."""

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
    parity_k3: Annotated[float, Field(ge=0)] = 0.0
    """Maximum mean k3 between the learner's and the engine's log-probabilities of the same tokens under the same
    weights.  A run that exceeds it at its start ends; later it is an alert.  0 for 0.0001 in float32, and 0.001 if
    either side computes in bfloat16."""
    parity_every_steps: CountInt = 10
    """Optimizer steps between two parity probes, for each of which the engines sample a few hundred tokens; the first
    comes before an attempt's first step.  0 for no probes: then the first batch with tokens of the current weights is
    compared."""
