"""Check of stored payloads."""

from __future__ import annotations

from protocol import codec


def is_acknowledged(blob: bytes, digest: bytes) -> bool:
    """Return whether ``blob`` is an intact trajectory, by its own checksum too, with the acknowledged ``digest``."""
    try:
        return codec.inspect_blob(blob).digest == digest
    except codec.CodecError:
        return False
