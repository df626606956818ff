"""Changes a glibc program so that it takes no code and no locale from the container that it runs in.  Pure.

The paths of files that glibc loads by itself are compiled in: converters and locales, the loader's folders, cache and
preload list, name services.  Each is overwritten in place by a path of the same length in the toolchain's read-only
folder, which has no such file, or ours.  Files that a program opens by its own paths are not affected.
"""

from __future__ import annotations

import re
from enum import Enum

from protocol.errors import UserError

_KIT = b"/.sbx"
LOCALES_FOLDER, NSSWITCH_FILE = "locale", "nsswitchconf"
"""Names in the toolchain's folder that a sealed program finds in place of the container's."""
_BARE, _NOBODYS = b"/lib/", b"/sys/"
"""The one folder whose name is too short for ours, and a folder in which no root of a container creates files."""
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


def seal_program(name: str, program: bytes, *wanted: GlibcPath) -> bytes:
    """Return the sealed program, of the same length.  Raises UserError when it lacks a path that is ``wanted``."""
    for place in GlibcPath:
        program, found = re.subn(place.value, _elsewhere, program)
        if not found and place in wanted:
            raise UserError(f"{name} does not name what glibc does ({place.name.lower()}), and the kit cannot close it")
    return program


def seal_static_program(name: str, program: bytes) -> bytes:
    """Seal a static program; one without glibc is unchanged."""
    return seal_program(name, program, *STATIC_PATHS) if b"glibc" in program else program


def _elsewhere(found: re.Match[bytes]) -> bytes:
    return b"\0".join(map(_moved, found[0].split(b"\0")))


def _moved(path: bytes) -> bytes:
    """Return a path of the same length in the toolchain's folder."""
    name = path.rpartition(b"/")[2]
    if path == _BARE:
        return _NOBODYS
    if name:
        return _KIT + b"/" + name.replace(b".", b"", 1)
    return _KIT.ljust(len(path), b"/") if path else b""
