"""The one error that bytes from elsewhere can cause."""

from __future__ import annotations

from protocol.errors import LongshoreError


class CodecError(LongshoreError):
    """These bytes are not a trajectory, or this trajectory breaks an invariant."""
