"""PID 1's command line: its lifetime, the directory of its shells, and its clients' key."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from sandbox.session.init_connection.wire import KEY_BYTES

INIT_PROGRAM = "/.sbx/init"


def init_command(first_s: float, most_s: float, workdir: str) -> tuple[str, ...]:
    """Build a container's ``Cmd`` for PID 1 with its first deadline and maximum life, in seconds.

    PID 1 erases the key from its memory before anything else runs in the container: nothing inside can read it, but
    everyone with access to the daemon can.
    """
    key = "K" + secrets.token_hex(KEY_BYTES // 2)[1:]
    return (INIT_PROGRAM, str(round(first_s * 1000)), str(round(most_s * 1000)), workdir, key)


def init_key(made: Sequence[str]) -> bytes:
    """Return the key in a command line of :func:`init_command`; empty for any other command."""
    last = made[-1].encode() if made else b""
    return last if len(last) == KEY_BYTES else b""
