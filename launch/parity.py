"""Whether serving and training give the same tokens the same probability: what a run is that begins without it."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import UserError

_LEAST_TOKENS = 32
"""A mean over fewer says nothing."""


class ParityWatch:
    """Looks at :func:`learner.metrics.parity` of each step."""

    def __init__(self, limit: float) -> None:
        self._limit, self._began, self._told = limit, False, False

    def take(self, metrics: Mapping[str, float]) -> str | None:
        """Advice, once, where a run that was in parity no longer is.  Raises UserError where it never was."""
        if metrics.get("parity_tokens", 0.0) < _LEAST_TOKENS:
            return None
        began, self._began = self._began, True
        if (found := metrics["parity_k3"]) <= self._limit or self._told:
            return None
        said = (
            f"serving and training disagree about tokens of the same weights: mean k3 {found:.2g} is above "
            f"stop.parity_k3 = {self._limit:g}"
        )
        if not began:
            raise UserError(
                f"{said}, and what is trained is not what was sampled. Compare engine.dtype with learner.dtype and the "
                "sampling options with the engine's, or, if this much is meant to be, set a higher stop.parity_k3"
            )
        self._told = True
        return said
