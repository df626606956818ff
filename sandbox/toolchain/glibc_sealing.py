"""A program of glibc's, changed so that it takes no code and no locale from the container it runs in.  Pure.

Which files glibc loads by itself is compiled in: converters and locales, the loader's own folders, cache and preload
list, name services.  Each such path is written over in place by one of the same length in the kit's read-only folder,
where there is no such file, or ours.  What a program asks for by a path of its own it gets.
"""

from __future__ import annotations

import re
from enum import Enum

from protocol.errors import UserError

_KIT = b"/.sbx"
LOCALES_FOLDER, NSSWITCH_FILE = "locale", "nsswitchconf"
"""What a closed program finds in the kit's folder in place of the container's."""
_BARE, _NOBODYS = b"/lib/", b"/sys/"
"""The one folder whose name has no room for the kit's, and one in which no root of a container makes a file."""
_DATA = rb"/usr/(?:lib\w{0,3}|share)/(?=(?:[\w-]+/)?%b(?:/(?:locale-archive|gconv-modules\.cache))?\0)"


class GlibcPath(Enum):
    """What glibc looks for in a container, as it is written in a program."""

    FOLDERS = rb"(?:(?:/usr)?/lib\w{0,3}/(?:[\w-]+/)?\0){2,}"
    """Of libraries: the loader's list, one after the other."""
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
    """``program``, of the same length.  Raises UserError where it does not name all that is ``wanted``."""
    for place in GlibcPath:
        program, found = re.subn(place.value, _elsewhere, program)
        if not found and place in wanted:
            raise UserError(f"{name} does not name what glibc does ({place.name.lower()}), and the kit cannot close it")
    return program


def seal_static_program(name: str, program: bytes) -> bytes:
    """The same for a static program; one without glibc loads nothing."""
    return seal_program(name, program, *STATIC_PATHS) if b"glibc" in program else program


def _elsewhere(found: re.Match[bytes]) -> bytes:
    return b"\0".join(map(_moved, found[0].split(b"\0")))


def _moved(path: bytes) -> bytes:
    """As long as ``path``, in the kit's folder."""
    name = path.rpartition(b"/")[2]
    if path == _BARE:
        return _NOBODYS
    if name:
        return _KIT + b"/" + name.replace(b".", b"", 1)
    return _KIT.ljust(len(path), b"/") if path else b""
