"""Checks whether serving and training give the same tokens the same probability.  Pure.

Two measurements share one limit.  A parity check compares tokens that were sampled for it
(:mod:`launch.training.parity_samples`), before the first step after a start and every few steps; a step compares those
tokens of its batch that its current weights sampled, if there are any.  If the first measurement after a start exceeds
the limit, the run ends; a later one is an alert, once of either kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from launch.run_records.step_facts import LogprobParity
from learner.losses.ratios import LARGEST_LOG_RATIO
from protocol.errors import UserError

_MIN_STEP_TOKENS = 32
"""Minimum number of tokens of a step's measurement; a mean over fewer means nothing."""


def measure_parity(
    learner: Sequence[npt.NDArray[np.floating]], engine: Sequence[npt.NDArray[np.floating]]
) -> LogprobParity:
    """Compare log-probabilities of the same tokens, at least one."""
    gap = np.concatenate(learner).astype(np.float64) - np.concatenate(engine).astype(np.float64)
    gap = np.clip(gap, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return LogprobParity(float(np.mean(np.expm1(gap) - gap)), len(gap))


class ParityMonitor:
    """Compares each measurement since the start with one limit."""

    def __init__(self, limit: float, dtypes: str) -> None:
        """``dtypes`` names the data types of both sides, for the error message."""
        self.limit, self._dtypes = limit, dtypes
        self._has_measured = False
        self._alerted = set[str]()

    def check_samples(self, found: LogprobParity) -> str | None:
        """Return the text of an alert, if any.  Raises UserError if the run starts out of parity."""
        return self._check(found, "sampled for a parity check")

    def check_step(self, metrics: Mapping[str, float]) -> str | None:
        """Do the same for the metrics of a step."""
        tokens = int(metrics.get("parity_tokens", 0.0))
        return (
            self._check(LogprobParity(metrics["parity_k3"], tokens), "of a batch")
            if tokens >= _MIN_STEP_TOKENS
            else None
        )

    def _check(self, found: LogprobParity, which: str) -> str | None:
        had_measured, self._has_measured = self._has_measured, True
        if found.k3 <= self.limit or which in self._alerted:
            return None
        problem = (
            f"serving and training disagree about {found.tokens} tokens {which}, of the same weights: mean k3 "
            f"{found.k3:.2g} is above parity.max_k3 = {self.limit:g}"
        )
        if not had_measured:
            raise UserError(
                f"{problem}, so the policy that is trained is not the one that sampled. Find out what differs ("
                f"{self._dtypes}; the weights that each has loaded; the kernels that the engine's log names), or, if "
                "this much is meant to be, go on with --resume and a higher --set parity.max_k3=LIMIT"
            )
        self._alerted.add(which)
        return problem
