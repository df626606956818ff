"""Settings of the staleness of trained tokens: ``[staleness]``.

The rules are in :mod:`protocol.staleness`, which loads no pydantic.
"""

from __future__ import annotations

from protocol.settings import ConfigSection, CountInt
from protocol.staleness import StaleTokenPolicy


class StalenessSettings(ConfigSection):
    """Limits of the staleness of trained tokens."""

    max_staleness: CountInt = 2
    """Largest staleness of a trained token: optimizer steps between the weights that sampled it and those that train on
    it."""
    policy: StaleTokenPolicy = StaleTokenPolicy.MASK
    """Policy for staler tokens: ``mask``, ``wait`` or ``drop``."""
