"""Makes the programs of a folder run in any image: its loader and libraries are copied beside them.  Blocking.

Each program names its loader in place, by a path in the sandbox that is shorter than the usual one, so that its other
bytes, among them what bundlers append to it, stay as they are.  The loader is sealed: it finds libraries in this folder
alone, so an image's own libc (older, or musl) is never used.  The processes that a harness starts use the image's.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.errors import UserError
from sandbox.docker.container_spec import AGENT_PROGRAMS
from sandbox.toolchain.glibc_sealing import LIBC_PATHS, LOADER_PATHS, NSSWITCH_FILE
from sandbox.toolchain.relocation import LIBC, LISTED_LIBRARY, LOADER, find_later_libraries, seal_library

_ELF_64 = b"\x7fELF\x02"
_PT_INTERP = 3
_MISSING = re.compile(r"^[^\S\n]*+(\S++) => not found", re.MULTILINE)


class LoaderName(NamedTuple):
    """The place where an ELF program names its loader."""

    offset: int
    length: int
    loader: Path


def make_portable(folder: Path, program: Path) -> None:
    """Change the programs below ``folder``, which is :data:`AGENT_PROGRAMS` in a sandbox, and copy their loader and
    libraries into it.

    Raises UserError if ``program`` needs a library that this machine does not have.
    """
    binaries = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)]
    named = {path: name for path in binaries if (name := find_loader_name(path)) and "ld-linux" in name.loader.name}
    if not named:
        return
    libraries = set[Path]()
    for path in binaries:
        listed = subprocess.run(("ldd", str(path)), capture_output=True, text=True, check=False).stdout
        libraries.update(Path(each) for each in LISTED_LIBRARY.findall(listed) if not Path(each).is_relative_to(folder))
        if path.samefile(program) and (missing := _MISSING.findall(listed)):
            raise UserError(f"{program.name} needs {', '.join(missing)}, which this machine lacks: install it")
    loader = next(iter(named.values())).loader
    for library in libraries | find_later_libraries(libraries):
        if library.name != loader.name:
            shutil.copy(library, folder / library.name)
    shutil.copy(loader, folder / LOADER)
    seal_library(folder / LOADER, LOADER_PATHS, AGENT_PROGRAMS.encode())
    seal_library(folder / LIBC, LIBC_PATHS, AGENT_PROGRAMS.encode())
    (folder / NSSWITCH_FILE).write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for path, name in named.items():
        with path.open("r+b") as file:
            file.seek(name.offset)
            file.write(f"{AGENT_PROGRAMS}/{LOADER}".encode().ljust(name.length, b"\0"))


def find_loader_name(program: Path) -> LoaderName | None:
    """Return where a program of 64 bits names its loader; None for a library or a static program."""
    with program.open("rb") as file:
        header = file.read(64)
        (table,) = struct.unpack_from("<Q", header, 32)
        entry_size, entries = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        for entry in _split(file.read(entry_size * entries), entry_size):
            kind, offset, length = struct.unpack_from("<I4xQ16xQ", entry)
            if kind == _PT_INTERP:
                file.seek(offset)
                return LoaderName(offset, length, Path(file.read(length).rstrip(b"\0").decode()))
    return None


def _split(table: bytes, size: int) -> Iterator[bytes]:
    return (table[at : at + size] for at in range(0, len(table), size))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ELF_64)) == _ELF_64
