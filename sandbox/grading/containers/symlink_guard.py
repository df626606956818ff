"""Removes links in a container that lead to the hidden tests (``sandbox/init/links.c``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sandbox.session.child_process import collect_child_output
from sandbox.session.init_connection.init_command import INIT_PROGRAM
from sandbox.session.sandbox_session import SandboxSession

LIMIT_S = 60.0
_MOST_BYTES = 4096


class LinkRemoval(NamedTuple):
    removed: str
    """Links that were removed, for the log; empty for none."""
    why: str = ""
    """Reason why the run is void, if not all links could be checked; empty otherwise."""


async def remove_links(test_session: SandboxSession, hidden: Sequence[str]) -> LinkRemoval:
    """Remove links into these folders and through ``/proc``. One that a running process makes meanwhile may stay.

    Raises OSError when no process can be started, SandboxLost, SandboxDestroyed.
    """
    argv = (INIT_PROGRAM, "links", "/", *hidden)
    end, output = await collect_child_output(test_session, argv, env={}, limit_s=LIMIT_S, most_bytes=_MOST_BYTES)
    text = printable_names(output)
    if end is None:
        return LinkRemoval("", f"the links in the container could not all be checked within {LIMIT_S:g} s")
    if end.code or end.signalled:
        return LinkRemoval("", f"the links in the container could not all be checked: {text or 'it was killed'}")
    return LinkRemoval(
        f"links that lead, or may come to lead, to the tests' hidden files were removed: {text}" if text else ""
    )


def printable_names(names: bytes | bytearray) -> str:
    """Return the names of links with unprintable characters escaped."""
    text = names.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
