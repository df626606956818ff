"""A tar that an agent's files came in, made fit to be unpacked elsewhere.  Pure but for the two tar files.

Kept: regular files, folders, and links, where the folder that they lie in has been kept.  Left out: devices, pipes,
anything outside the artifact, anything that would be written through a link, a second file of the same name, paths that
are too long to be copied, permission bits beyond rwx.  Whether a link points somewhere useful is the tests' question.

It takes time in proportion to the archive, whatever is in it, and ends soon after nobody wants it any more.
"""

from __future__ import annotations

import copy
import os
import posixpath
import tarfile
from collections.abc import Callable
from pathlib import Path

MAX_ARTIFACT_BYTES = 512 << 20
"""Of all artifacts of one task together."""
_MAX_MEMBERS = 100_000
_MAX_NAMES_BYTES = 32 << 20
"""Of all names in one artifact, and of what its links say."""
_MAX_PATH_BYTES = 3840
"""PATH_MAX, less what a daemon has before a container's path on its own host."""
_PAX_NAMES = frozenset({"path", "linkpath"})
"""What tarfile would write in the place of a member's own."""


class UnfitArtifactError(Exception):
    """What the agent left cannot be carried to where its tests run.  The message says why."""


class ArtifactCopyCancelledError(Exception):
    """Nobody waits for it any more."""


def sanitize_tar(source: Path, target: Path, top: str, name: str, unwanted: Callable[[], bool]) -> None:
    """Copy what is sound of ``source`` to ``target``.  ``top`` is the base name of what was packed, and ``name`` the
    one that it gets.

    Raises Unfit when the tar is broken or too long, or its top is a link; Unwanted when ``unwanted`` says so.
    """
    try:
        with tarfile.open(source, "r:") as old, tarfile.open(target, "w") as new:
            _copy(old, new, top, name, unwanted)
    except tarfile.TarError as error:
        raise UnfitArtifactError(f"{name} cannot be read: {error}") from error


def _copy(old: tarfile.TarFile, new: tarfile.TarFile, top: str, name: str, unwanted: Callable[[], bool]) -> None:
    kept: dict[str, bytes] = {}
    names_bytes = 0
    for count, member in enumerate(old):
        names_bytes += len(member.name) + len(member.linkname)
        if unwanted():
            raise ArtifactCopyCancelledError
        if count >= _MAX_MEMBERS:
            raise UnfitArtifactError(f"{name} holds more than {_MAX_MEMBERS} files")
        if names_bytes > _MAX_NAMES_BYTES:
            raise UnfitArtifactError(
                f"the names of what {name} holds are longer than {_MAX_NAMES_BYTES >> 20} MiB together"
            )
        path, linked = posixpath.normpath(member.name), posixpath.normpath(member.linkname)
        if path == top and not (member.isreg() or member.isdir()):
            raise UnfitArtifactError(f"{name} is neither a file nor a folder")
        if path in kept or not (path == top or kept.get(posixpath.dirname(path)) == tarfile.DIRTYPE):
            continue
        if not _is_sound(member, kept.get(linked)) or len(os.fsencode(path)) > _MAX_PATH_BYTES:
            continue
        kept[path] = member.type
        sound = copy.copy(member)
        sound.name, sound.mode = name + path.removeprefix(top), member.mode & 0o777
        sound.pax_headers = {key: value for key, value in member.pax_headers.items() if key not in _PAX_NAMES}
        if member.islnk():
            sound.linkname = name + linked.removeprefix(top)
        new.addfile(sound, old.extractfile(member) if member.isreg() else None)


def _is_sound(member: tarfile.TarInfo, linked: bytes | None) -> bool:
    """``linked`` is the type of what a hard link is another name of, where that is kept."""
    return member.isdir() or member.isreg() or member.issym() or (member.islnk() and linked in tarfile.REGULAR_TYPES)
