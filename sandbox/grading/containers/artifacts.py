"""Copies a tar of an agent's files so that it can be unpacked safely elsewhere.  Pure but for the two tar files.

Kept: regular files, folders and links whose folder is kept. Left out: devices, pipes, everything outside the artifact
or that would be written through a link, a second file of the same name, paths that are too long, permission bits beyond
rwx. Where a link leads is for the tests to check.

The time is proportional to the archive, whatever its content, and with patterns that exclude something also to the
depth of its paths. The copy ends soon after it is cancelled.
"""

from __future__ import annotations

import copy
import fnmatch
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

MAX_ARTIFACT_BYTES = 512 << 20
"""Maximum total size of all artifacts of one task."""
MAX_MEMBERS = 100_000
MAX_NAMES_BYTES = 32 << 20
"""Maximum total length of all names and link targets in one artifact."""
MAX_PATH_BYTES = 3840
"""PATH_MAX minus the prefix of a container's path on the daemon's host."""
_PAX_NAMES = frozenset({"path", "linkpath"})
"""Headers that tarfile would write in place of a member's own name."""


class UnfitArtifactError(Exception):
    """The agent's files cannot be copied to where its tests run; the message gives the reason."""


class ArtifactCopyCancelledError(Exception):
    """The copy was cancelled."""


def sanitize_tar(
    source: Path, target: Path, top: str, name: str, is_cancelled: Callable[[], bool], *, excludes: Sequence[str] = ()
) -> None:
    """Copy the safe members of ``source`` to ``target``.

    ``top`` is the base name of the packed path and ``name`` its new one; ``excludes``: patterns of members below it
    that are left out, as ``--exclude`` of GNU tar has them. Raises UnfitArtifactError if the tar is broken
    or too long or its top is a link; ArtifactCopyCancelledError when ``is_cancelled`` returns True.
    """
    try:
        with tarfile.open(source, "r:") as old, tarfile.open(target, "w") as new:
            _copy(old, new, top, name, is_cancelled, excludes=[_excluding(each) for each in excludes])
    except tarfile.TarError as error:
        raise UnfitArtifactError(f"{name} cannot be read: {error}") from error


def _copy(
    old: tarfile.TarFile,
    new: tarfile.TarFile,
    top: str,
    name: str,
    is_cancelled: Callable[[], bool],
    *,
    excludes: Sequence[re.Pattern[str]],
) -> None:
    kept: dict[str, bytes] = {}
    names_bytes = 0
    for count, member in enumerate(old):
        names_bytes += len(member.name) + len(member.linkname)
        if is_cancelled():
            raise ArtifactCopyCancelledError
        if count >= MAX_MEMBERS:
            raise UnfitArtifactError(f"{name} holds more than {MAX_MEMBERS} files")
        if names_bytes > MAX_NAMES_BYTES:
            raise UnfitArtifactError(f"the names of the files in {name} exceed {MAX_NAMES_BYTES >> 20} MiB in total")
        path, link_target = posixpath.normpath(member.name), posixpath.normpath(member.linkname)
        if path == top and not (member.isreg() or member.isdir()):
            raise UnfitArtifactError(f"{name} is neither a file nor a folder")
        if path in kept or not (path == top or kept.get(posixpath.dirname(path)) == tarfile.DIRTYPE):
            continue
        if not _is_sound(member, kept.get(link_target)) or len(os.fsencode(path)) > MAX_PATH_BYTES:
            continue
        if any(each.match(path.removeprefix(top)) for each in excludes):
            continue
        kept[path] = member.type
        cleaned = copy.copy(member)
        cleaned.name, cleaned.mode = name + path.removeprefix(top), member.mode & 0o777
        cleaned.pax_headers = {key: value for key, value in member.pax_headers.items() if key not in _PAX_NAMES}
        if member.islnk():
            cleaned.linkname = name + link_target.removeprefix(top)
        new.addfile(cleaned, old.extractfile(member) if member.isreg() else None)


def _excluding(pattern: str) -> re.Pattern[str]:
    """Return what matches a path below the artifact, with a ``/`` before each name, that the pattern excludes.

    It may begin at any name, and its ``*`` goes beyond a ``/``; ``./`` is the artifact itself. What is in a folder that
    is excluded needs no match.
    """
    start = "/" if pattern.startswith(("./", "*")) else "/(?s:.*/)?"
    literal = re.sub(r"\\(.)", r"[\1]", pattern.removeprefix("./"))
    return re.compile(start + fnmatch.translate(literal))


def _is_sound(member: tarfile.TarInfo, target_type: bytes | None) -> bool:
    """Return whether a member can be kept; ``target_type`` is the type of a hard link's target, if that is kept."""
    return (
        member.isdir() or member.isreg() or member.issym() or (member.islnk() and target_type in tarfile.REGULAR_TYPES)
    )
