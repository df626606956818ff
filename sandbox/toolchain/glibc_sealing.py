"""Changes a glibc program so that it loads no code and no locale from the container that it runs in. Pure.

The paths of files that glibc loads by itself are compiled in: converters and locales, the loader's folders, cache and
preload list, name services. Each is overwritten in place by a path of the same length in the toolchain's read-only
folder, which either lacks the file or has longshore's. Files that a program opens by its own paths are not affected.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import partial

from protocol.errors import UserError

TOOLCHAIN = b"/.sbx"
LOCALES_FOLDER, NSSWITCH_FILE = "locale", "nsswitchconf"
"""Names in the toolchain's folder that a sealed program uses instead of the container's."""
_BARE, _UNWRITABLE = b"/lib/", b"/sys/"
"""The only folder whose name is too short for the toolchain's, and a folder in which no root user creates files."""
_DATA = rb"/usr/(?:lib\w{0,3}|share)/(?=(?:[\w-]+/)?%b(?:/(?:locale-archive|gconv-modules\.cache))?\0)"


class GlibcPath(Enum):
    """A kind of path that glibc looks for, as a pattern of its bytes in a program."""

    FOLDERS = rb"(?:(?:/usr)?/lib\w{0,3}/(?:[\w-]+/)?\0){2,}"
    """The loader's list of library folders, one after the other."""
    CACHE = rb"/etc/ld\.so\.cache(?=\0)"
    PRELOAD = rb"/etc/ld\.so\.preload(?=\0)"
    GCONV = _DATA % b"gconv"
    LOCALE = _DATA % b"locale"
    NSSWITCH = rb"/etc/nsswitch\.conf(?=\0)"
    NSCD = rb"/var/run/nscd/(?=so)"


LOADER_PATHS = (GlibcPath.FOLDERS, GlibcPath.CACHE, GlibcPath.PRELOAD)
LIBC_PATHS = (GlibcPath.GCONV, GlibcPath.LOCALE, GlibcPath.NSSWITCH)
STATIC_PATHS = (GlibcPath.FOLDERS, GlibcPath.CACHE, GlibcPath.GCONV, GlibcPath.LOCALE)


def seal_program(name: str, program: bytes, *wanted: GlibcPath, folder: bytes = TOOLCHAIN) -> bytes:
    """Return the sealed program, of the same length, whose paths are in ``folder``, a name of five characters.

    Raises UserError if it lacks a path that is ``wanted``."""
    for glibc_path in GlibcPath:
        program, found = re.subn(glibc_path.value, partial(_move_paths, folder), program)
        if not found and glibc_path in wanted:
            raise UserError(
                f"{name} does not contain glibc's {glibc_path.name.lower()} paths, so the toolchain cannot seal it"
            )
    return program


def seal_static_program(name: str, program: bytes) -> bytes:
    """Seal a static program; one without glibc is unchanged."""
    return seal_program(name, program, *STATIC_PATHS) if b"glibc" in program else program


def _move_paths(folder: bytes, found: re.Match[bytes]) -> bytes:
    return b"\0".join(_moved_path(folder, path) for path in found[0].split(b"\0"))


def _moved_path(folder: bytes, path: bytes) -> bytes:
    """Return a path of the same length in ``folder``."""
    name = path.rpartition(b"/")[2]
    if path == _BARE:
        return _UNWRITABLE
    if name:
        return folder + b"/" + name.replace(b".", b"", 1)
    return folder.ljust(len(path), b"/") if path else b""
