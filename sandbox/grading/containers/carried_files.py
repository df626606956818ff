"""Files of the agent's container on their way to another one: packed, made fit to be unpacked, and unpacked there."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import NamedTuple

from sandbox.docker.file_status import container_file_status
from sandbox.docker.user_files import check_user_files
from sandbox.errors import SandboxStartError
from sandbox.grading.containers.artifacts import MAX_ARTIFACT_BYTES, UnfitArtifactError, sanitize_tar
from sandbox.grading.containers.container_calls import ArchiveTooLargeError, read_archive, write_archive
from sandbox.grading.containers.container_paths import clear_paths
from sandbox.grading.containers.transfer import freeze_agent, retry_transfer
from sandbox.grading.isolation.environment import TESTS_DIR
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.file_tree import is_within

_NO_ARTIFACT = ("/proc", "/sys", "/dev", TESTS_DIR, "/.sbx")
"""Folders that are not the agent's own."""


class PackedFiles(NamedTuple):
    """A tar of one path, as the daemon packed it."""

    target: str
    """Where it is to be unpacked."""
    top: str
    """Base name of the tar's top member."""
    tar: Path


class CarriedFiles(NamedTuple):
    """A tar that is fit to be unpacked; its top member has the base name of ``path``."""

    path: str
    tar: Path


async def collect_artifacts(
    session: SandboxSession, places: Mapping[str, str], folder: Path, *, live: bool
) -> list[CarriedFiles]:
    """Pack the artifacts that exist.  ``places``: target → path.  ``live``: freeze the container meanwhile."""
    async with freeze_agent(session, live=True) if live else nullcontext():
        there = await pack_files(session, places, folder)
    return await sanitize_files(there)


async def pack_files(session: SandboxSession, places: Mapping[str, str], folder: Path) -> list[PackedFiles]:
    """Pack each path that exists, or what it leads to if it is a link.  ``places``: target → path.

    Raises UnfitArtifactError when they are too large together.
    """
    await check_user_files(session.engine, session.container)
    room, there = MAX_ARTIFACT_BYTES, list[PackedFiles]()
    for number, (target, path) in enumerate(places.items()):
        raw, real = folder / f"{number}.raw", await _follow_link(session, path)
        try:
            with raw.open("wb") as file:
                if await read_archive(session.engine, session.container, real, file, room):
                    there.append(PackedFiles(target, posixpath.basename(real), raw))
                room -= file.tell()
        except ArchiveTooLargeError as error:
            raise UnfitArtifactError(
                f"{', '.join(places.values())} hold more than {MAX_ARTIFACT_BYTES >> 20} MiB"
            ) from error
    return there


async def _follow_link(session: SandboxSession, path: str) -> str:
    """Return what ``path`` leads to if it is a link.  Raises UnfitArtifactError if that is not the agent's."""
    found = await container_file_status(session.engine, session.container, path)
    if found is None or not found.is_link:
        return path
    if found.target == "/" or is_within(found.target, _NO_ARTIFACT):
        raise UnfitArtifactError(f"{path} is a link to {found.target}")
    return found.target


async def sanitize_files(there: Sequence[PackedFiles]) -> list[CarriedFiles]:
    """Make packed files fit to be unpacked.  When this is cancelled, its thread ends soon."""
    unwanted = Event()
    try:
        return await asyncio.to_thread(_sanitize_blocking, there, unwanted.is_set)
    finally:
        unwanted.set()


def _sanitize_blocking(there: Sequence[PackedFiles], unwanted: Callable[[], bool]) -> list[CarriedFiles]:
    """Sanitize each tar.  Blocking."""
    found: list[CarriedFiles] = []
    for target, top, raw in there:
        sound = raw.with_suffix(".tar")
        sanitize_tar(raw, sound, top, posixpath.basename(target), unwanted)
        raw.unlink()
        found.append(CarriedFiles(target, sound))
    return found


async def unpack_files(
    bench: SandboxSession, paths: Sequence[str], found: Sequence[CarriedFiles], works: Callable[[], Awaitable[bool]]
) -> None:
    """Replace what is at ``paths`` by the carried files, and by nothing where there are none."""

    async def unpack() -> None:
        for path, tar in found:
            await write_archive(bench.engine, bench.container, posixpath.dirname(path), tar)

    await clear_paths(bench, paths)
    try:
        above = {posixpath.dirname(path) for path, _ in found} - {"/"}
        await bench.write_files({f"{each}/": b"" for each in above}, mode=0o755)
    except OSError as error:
        raise SandboxStartError(f"no room for what the agent left in a container beside its own: {error}") from error
    await retry_transfer(unpack, works)
