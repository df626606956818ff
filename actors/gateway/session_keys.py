"""API keys of sessions: one secret, and no list of who may come.

A key is ``lsk-SESSION.MAC``: it names its session, so that a base URL and a key are all that a harness needs, and
nobody makes the key of another session of it.
"""

from __future__ import annotations

import hashlib
import hmac

_PREFIX = "lsk-"


class SessionKeys:
    """``secret``: the run's, random and at least 16 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def create_key(self, session: str) -> str:
        """The API key of ``session``."""
        return f"{_PREFIX}{session}.{self._mac(session)}"

    def verify_key(self, key: str) -> str | None:
        """Whose key it is; None where it is nobody's.  Takes as long for a wrong key as for a right one."""
        session, _, mac = key.removeprefix(_PREFIX).rpartition(".")
        return session if hmac.compare_digest(_bytes(mac), _bytes(self._mac(session))) else None

    def _mac(self, session: str) -> str:
        return hmac.new(self._secret, _bytes(session), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Of a header's text, which may have come as any bytes."""
    return text.encode(errors="surrogateescape")
