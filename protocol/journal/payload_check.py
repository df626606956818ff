"""Whether stored bytes are what was acknowledged."""

from __future__ import annotations

from protocol import codec


def is_acknowledged(blob: bytes, digest: bytes) -> bool:
    """Whether ``blob`` is the whole trajectory that was acknowledged as ``digest``: its own checksum is checked too."""
    try:
        return codec.inspect_blob(blob).digest == digest
    except codec.CodecError:
        return False
