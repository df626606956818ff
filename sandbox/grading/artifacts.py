"""A tar that an agent's files came in, made fit to be unpacked elsewhere.  Pure but for the two tar files.

Kept: regular files, folders, and links.  Left out: devices, pipes, anything outside the artifact, anything that would
be written through a link, permission bits beyond rwx.  Whether a link points somewhere useful is the tests' question.
"""

from __future__ import annotations

import copy
import posixpath
import tarfile
from pathlib import Path

from sandbox.tasks.tree import is_in

MAX_BYTES = 512 << 20
"""Of all artifacts of one task together."""
_MAX_MEMBERS = 100_000


class Unfit(Exception):
    """What the agent left cannot be carried to where its tests run.  The message says why."""


def clean_tar(source: Path, target: Path, name: str) -> None:
    """Copy what is sound of ``source`` to ``target``.  ``name`` is the artifact's own base name, the top of the tar.

    Raises Unfit when the tar is broken, too long, or its top is a link.
    """
    try:
        with tarfile.open(source, "r:") as old, tarfile.open(target, "w") as new:
            _copy(old, new, name)
    except tarfile.TarError as error:
        raise Unfit(f"{name} cannot be read: {error}") from error


def _copy(old: tarfile.TarFile, new: tarfile.TarFile, top: str) -> None:
    links: set[str] = set()
    for count, member in enumerate(old):
        if count >= _MAX_MEMBERS:
            raise Unfit(f"{top} holds more than {_MAX_MEMBERS} files")
        path = posixpath.normpath(member.name)
        if path == top and not (member.isreg() or member.isdir()):
            raise Unfit(f"{top} is neither a file nor a folder")
        if not is_in(path, (top,)) or links.intersection(_above(path)):
            continue
        if member.issym():
            links.add(path)
        elif not (member.isreg() or member.isdir() or (member.islnk() and _is_file(member.linkname, top, links))):
            continue
        sound = copy.copy(member)
        sound.name, sound.mode = path, member.mode & 0o777
        if member.islnk():
            sound.linkname = posixpath.normpath(member.linkname)
        new.addfile(sound, old.extractfile(member) if member.isreg() else None)


def _is_file(linked: str, top: str, links: set[str]) -> bool:
    path = posixpath.normpath(linked)
    return is_in(path, (top,)) and not links.intersection((path, *_above(path)))


def _above(path: str) -> list[str]:
    """Every folder above ``path``."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
