"""PID 1's command line: how long it lives, where its shells begin, and the key that a client of it has."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from sandbox.session.wire import KEY_BYTES

INIT_PROGRAM = "/.sbx/init"


def init_command(first_s: float, most_s: float, workdir: str) -> tuple[str, ...]:
    """A container's ``Cmd``.  PID 1 forgets the key's place before anything else runs beside it: inside, nobody can
    read it; outside, who may ask the daemon can."""
    key = "K" + secrets.token_hex(KEY_BYTES // 2)[1:]
    return (INIT_PROGRAM, str(round(first_s * 1000)), str(round(most_s * 1000)), workdir, key)


def init_key(made: Sequence[str]) -> bytes:
    """The key in what :func:`command` gave; empty where it gave something else."""
    last = made[-1].encode() if made else b""
    return last if len(last) == KEY_BYTES else b""
