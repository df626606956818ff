"""The only error that foreign bytes can cause."""

from __future__ import annotations

from protocol.errors import LongshoreError


class CodecError(LongshoreError):
    """The bytes are not a trajectory, or the trajectory breaks an invariant."""
