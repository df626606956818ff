"""Copies files from the agent's container to another one: packs them, makes them safe to unpack, and unpacks them."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import NamedTuple

from sandbox.docker.files.file_status import container_file_status
from sandbox.docker.files.user_files import check_user_files
from sandbox.errors import SandboxStartError
from sandbox.grading.containers.artifacts import MAX_ARTIFACT_BYTES, UnfitArtifactError, sanitize_tar
from sandbox.grading.containers.container_calls import ArchiveTooLargeError, read_archive, write_archive
from sandbox.grading.containers.container_paths import clear_paths
from sandbox.grading.containers.transfer import freeze_agent, retry_transfer
from sandbox.grading.isolation.environment import TESTS_DIR
from sandbox.session.files import write_files
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.file_tree import is_within

_NO_ARTIFACT = ("/proc", "/sys", "/dev", TESTS_DIR, "/.sbx")
"""Folders that do not belong to the agent."""


class PackedFiles(NamedTuple):
    """A tar of one path, as the daemon packed it."""

    target: str
    """Path at which it will be unpacked."""
    top: str
    """Base name of the tar's top member."""
    tar: Path
    excludes: tuple[str, ...] = ()
    """Patterns of what is left out."""


class CarriedFiles(NamedTuple):
    """A tar that is safe to unpack; its top member has the base name of ``path``."""

    path: str
    tar: Path


async def collect_artifacts(
    session: SandboxSession,
    paths_by_target: Mapping[str, str],
    folder: Path,
    *,
    live: bool,
    excludes: Mapping[str, tuple[str, ...]] | None = None,
) -> list[CarriedFiles]:
    """Pack the existing artifacts; ``paths_by_target`` maps targets to paths; ``live``: freeze the container
    meanwhile; ``excludes``: patterns of what is left out, by path."""
    async with freeze_agent(session, live=True) if live else nullcontext():
        packed = await pack_files(session, paths_by_target, folder)
    patterns = excludes or {}
    return await sanitize_files(
        [each._replace(excludes=patterns.get(paths_by_target[each.target], ())) for each in packed]
    )


async def pack_files(session: SandboxSession, paths_by_target: Mapping[str, str], folder: Path) -> list[PackedFiles]:
    """Pack each path that exists, or its target if it is a link; ``paths_by_target`` maps targets to paths.

    Raises UnfitArtifactError if they are too large in total.
    """
    await check_user_files(session.engine, session.container)
    room, packed = MAX_ARTIFACT_BYTES, list[PackedFiles]()
    for number, (target, path) in enumerate(paths_by_target.items()):
        raw, real = folder / f"{number}.raw", await _follow_link(session, path)
        try:
            with raw.open("wb") as file:
                if await read_archive(session.engine, session.container, real, file, room):
                    packed.append(PackedFiles(target, posixpath.basename(real), raw))
                room -= file.tell()
        except ArchiveTooLargeError as error:
            raise UnfitArtifactError(
                f"{', '.join(paths_by_target.values())} hold more than {MAX_ARTIFACT_BYTES >> 20} MiB"
            ) from error
    return packed


async def _follow_link(session: SandboxSession, path: str) -> str:
    """Return the target of ``path`` if it is a link. Raises UnfitArtifactError if the target is not the agent's."""
    found = await container_file_status(session.engine, session.container, path)
    if found is None or not found.is_link:
        return path
    if found.target == "/" or is_within(found.target, _NO_ARTIFACT):
        raise UnfitArtifactError(f"{path} is a link to {found.target}")
    return found.target


async def sanitize_files(packed: Sequence[PackedFiles]) -> list[CarriedFiles]:
    """Make packed files safe to unpack. When this is cancelled, its thread ends soon."""
    is_cancelled = Event()
    try:
        return await asyncio.to_thread(_sanitize_blocking, packed, is_cancelled.is_set)
    finally:
        is_cancelled.set()


def _sanitize_blocking(packed: Sequence[PackedFiles], is_cancelled: Callable[[], bool]) -> list[CarriedFiles]:
    """Sanitize each tar.  Blocking."""
    found: list[CarriedFiles] = []
    for target, top, raw, excludes in packed:
        sound = raw.with_suffix(".tar")
        sanitize_tar(raw, sound, top, posixpath.basename(target), is_cancelled, excludes=excludes)
        raw.unlink()
        found.append(CarriedFiles(target, sound))
    return found


async def unpack_files(
    test_session: SandboxSession,
    paths: Sequence[str],
    found: Sequence[CarriedFiles],
    works: Callable[[], Awaitable[bool]],
) -> None:
    """Replace what is at ``paths`` by the carried files, or remove it if there are none."""

    async def unpack() -> None:
        for path, tar in found:
            await write_archive(test_session.engine, test_session.container, posixpath.dirname(path), tar)

    await clear_paths(test_session, paths)
    try:
        above = {posixpath.dirname(path) for path, _ in found} - {"/"}
        await write_files(test_session, {f"{each}/": b"" for each in above}, mode=0o755)
    except OSError as error:
        raise SandboxStartError(f"no room for the agent's files in a second container: {error}") from error
    await retry_transfer(unpack, works)
