"""Resolves, clears and hands over paths in a container in which no process of the agent runs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from sandbox.docker.retry import Json
from sandbox.errors import SandboxStartError
from sandbox.session.child_process import collect_child_output
from sandbox.session.init_connection.init_requests import ROOT, ProcessUser
from sandbox.session.sandbox_session import SandboxSession
from sandbox.toolchain.in_container.layout import BUSYBOX, TOOLS

_LIMIT_S = 120.0
_REAL = """for each; do printf '%s\\0' "$(readlink -f "$each" || printf %s "$each")"; done"""
_CLEAR = 'for each; do rm -rf -- "$each"; done'


def image_volumes(description: Json) -> list[str]:
    """Return the mount points of the image's volumes, from the daemon's description of the container."""
    return [each["Destination"] for each in description.get("Mounts") or () if each.get("Type") == "volume"]


async def resolve_paths(test_session: SandboxSession, paths: Sequence[str]) -> dict[str, str]:
    """Return the path for each real path in the container's image.

    Raises SandboxStartError, SandboxLost, SandboxDestroyed.
    """
    resolved = (await _run_script(test_session, _REAL, paths)).decode().split("\0")
    return {posixpath.normpath(real): posixpath.normpath(path) for real, path in zip(resolved, paths, strict=False)}


async def clear_paths(test_session: SandboxSession, paths: Sequence[str]) -> None:
    """Remove the paths; a mount point stays, empty. Raises like :func:`resolve_paths`."""
    await _run_script(test_session, _CLEAR, paths)


async def touch(test_session: SandboxSession, path: str, user: ProcessUser) -> None:
    """Make an empty file as ``user``, with the folders above it. Raises like :func:`resolve_paths`."""
    await _run_script(test_session, 'mkdir -p "${1%/*}" && : > "$1"', (path,), user)


async def give_paths(test_session: SandboxSession, paths: Sequence[str], user: ProcessUser) -> None:
    """Make ``user`` the owner of the paths and of all below them. Raises like :func:`resolve_paths`."""
    await _run_script(test_session, f'chown -Rh {user.uid}:{user.gid} -- "$@"', paths)


async def _run_script(
    test_session: SandboxSession, script: str, paths: Sequence[str], user: ProcessUser = ROOT
) -> bytes:
    if not paths:
        return b""
    argv = (BUSYBOX, "sh", "-c", f"{script} 2>&-", "sh", *paths)
    try:
        end, output = await collect_child_output(test_session, argv, env={"PATH": TOOLS}, limit_s=_LIMIT_S, user=user)
    except OSError as error:
        raise SandboxStartError(f"the toolchain's shell does not start in a clean container: {error}") from error
    if end is None:
        raise SandboxStartError(f"{', '.join(paths)} could not be prepared within {_LIMIT_S:g} s")
    return output
