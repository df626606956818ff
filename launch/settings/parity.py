"""Settings of the parity check between serving and training log-probabilities: ``[parity]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from protocol.settings import ConfigSection, CountInt


class ParitySettings(ConfigSection):
    """How often the learner's and the engines' log-probabilities are compared, and how far they may differ."""

    max_k3: Annotated[float, Field(ge=0)] = 0.0
    """Maximum mean k3 between the learner's and the engine's log-probabilities of the same tokens under the same
    weights.  A run that exceeds it at its start ends; later it is an alert.  0 for 0.0001 in float32, and 0.001 if
    either side computes in bfloat16."""
    every_steps: CountInt = 10
    """Optimizer steps between two parity checks, for each of which the engines sample a few hundred tokens; the first
    comes before the first step after a start.  0 for no checks: then the first batch with tokens of the current
    weights is compared."""
