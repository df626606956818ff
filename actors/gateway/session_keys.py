"""API keys of sessions, derived from one secret.

A key is ``lsk-SESSION.MAC``: it names its session, so a harness needs only a base URL and a key, and cannot derive the
key of another session.
"""

from __future__ import annotations

import hashlib
import hmac

_PREFIX = "lsk-"


class SessionKeys:
    """Creates and verifies keys; ``secret`` is the gateway's, random and at least 16 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def create_key(self, session: str) -> str:
        """Return the API key of ``session``."""
        return f"{_PREFIX}{session}.{self._mac(session)}"

    def verify_key(self, key: str) -> str | None:
        """Return the session of a key, or None if it is invalid, in constant time."""
        session, _, mac = key.removeprefix(_PREFIX).rpartition(".")
        return session if hmac.compare_digest(_bytes(mac), _bytes(self._mac(session))) else None

    def _mac(self, session: str) -> str:
        return hmac.new(self._secret, _bytes(session), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Return the bytes of a header's text, which may not be valid UTF-8."""
    return text.encode(errors="surrogateescape")
