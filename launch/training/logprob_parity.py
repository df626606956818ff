"""Whether serving and training give the same tokens the same probability: what a run is that begins without it.

Two figures have one limit.  A probe's (:mod:`launch.training.parity_probe`) is of tokens that were sampled for it,
before an attempt's first step and every few steps; a step's own (:func:`learner.losses.metrics.parity`) is of those
in its batch that its very weights sampled, if there are any.  The first figure of an attempt ends the run where it is
above the limit; a later one is a word of advice, said once of either kind.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from launch.run_records.step_facts import LogprobParity
from protocol.errors import UserError

_LEAST_TOKENS = 32
"""Of a step's own; a mean over fewer says nothing."""
_LARGEST_LOG_RATIO = 20.0


def measure_parity(
    learner: Sequence[npt.NDArray[np.floating]], engine: Sequence[npt.NDArray[np.floating]]
) -> LogprobParity:
    """Of log-probabilities of the same tokens, at least one."""
    gap = np.concatenate(learner).astype(np.float64) - np.concatenate(engine).astype(np.float64)
    gap = np.clip(gap, -_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
    return LogprobParity(float(np.mean(np.expm1(gap) - gap)), len(gap))


class ParityMonitor:
    """See the module.  ``dtypes``: what both compute in, for the message."""

    def __init__(self, limit: float, dtypes: str) -> None:
        self.limit, self._dtypes = limit, dtypes
        self._began = False
        self._told = set[str]()

    def check_probe(self, found: LogprobParity) -> str | None:
        """Advice, if any.  Raises UserError where the run begins out of parity."""
        return self._check(found, "sampled for a probe")

    def check_step(self, metrics: Mapping[str, float]) -> str | None:
        """The same, of the metrics of a step."""
        tokens = int(metrics.get("parity_tokens", 0.0))
        return (
            self._check(LogprobParity(metrics["parity_k3"], tokens), "of a batch") if tokens >= _LEAST_TOKENS else None
        )

    def _check(self, found: LogprobParity, which: str) -> str | None:
        began, self._began = self._began, True
        if found.k3 <= self.limit or which in self._told:
            return None
        said = (
            f"serving and training disagree about {found.tokens} tokens {which}, of the same weights: mean k3 "
            f"{found.k3:.2g} is above stop.parity_k3 = {self.limit:g}"
        )
        if not began:
            raise UserError(
                f"{said}, so that what is trained would not be what was sampled. Find out what differs ("
                f"{self._dtypes}; the weights that each has loaded; the kernels that the engine's log names), or, if "
                "this much is meant to be, go on with --resume and a higher --set stop.parity_k3=LIMIT"
            )
        self._told.add(which)
        return said
