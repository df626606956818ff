"""The chain of secrets by which sessions of pytest prove that their canaries told the truth. Pure.

Standard library only: a copy runs in containers.
"""

from __future__ import annotations

from hashlib import sha256

from sandbox.toolchain.in_container.session_outcome import SessionOutcome

LIED = "lied"
"""What a session records whose canaries lied."""


def next_secret(secret: str) -> str:
    """Return the secret of the session after the one with ``secret``, which it does not reveal."""
    return sha256(f"next {secret}".encode()).hexdigest()


def proof_of(secret: str, outcome: SessionOutcome) -> str:
    """Return what the session with ``secret`` and this outcome records once its canaries have told the truth."""
    return sha256(f"truth {outcome.value} {secret}".encode()).hexdigest()
