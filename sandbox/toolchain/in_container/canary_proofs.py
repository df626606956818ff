"""The chain of secrets by which sessions of pytest prove that their canaries told the truth. Pure.

Standard library only: a copy runs in containers.
"""

from __future__ import annotations

from hashlib import sha256

LIED = "lied"
"""What a session records whose canaries lied."""


def next_secret(secret: str) -> str:
    """Return the secret of the session after the one with ``secret``, which it does not reveal."""
    return sha256(f"next {secret}".encode()).hexdigest()


def proof_of(secret: str, *, failed: bool) -> str:
    """Return what the session with ``secret`` records once its canaries have told the truth.

    ``failed``: a test of the session has failed.
    """
    return sha256(f"truth {failed} {secret}".encode()).hexdigest()
