"""Makes programs of this machine run in any image, with their loader and libraries at one fixed path. Blocking.

Each names its loader by an absolute path in the toolchain and finds every library by a DT_RPATH there, so that the
image's libc (old, musl, or replaced by the agent) is never used.  The loader and the libc themselves are sealed
(:mod:`sandbox.toolchain.glibc_sealing`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from protocol.errors import UserError
from sandbox.docker.daemon import run_program
from sandbox.toolchain import glibc_sealing
from sandbox.toolchain.in_container.layout import VERIFY

_LIBRARIES = f"{VERIFY}/lib"
LOADER, LIBC = "ld.so", "libc.so.6"
"""Names of a copied loader and C library."""
LISTED_LIBRARY = re.compile(r"^[^\S\n]*+(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
"""A library and its path in what ``ldd`` prints."""


def relocate_program(program: Path, patchelf: Path) -> None:
    """Make a program use the loader and libraries that :func:`copy_libraries` copies."""
    found = ("--set-interpreter", f"{_LIBRARIES}/{LOADER}", "--force-rpath", "--set-rpath", _LIBRARIES)
    run_program((str(patchelf), *found, str(program)), f"make {program.name} relocatable")


def remove_rpath(library: Path, patchelf: Path) -> None:
    run_program((str(patchelf), "--remove-rpath", str(library)), f"make {library.name} relocatable")


def copy_libraries(originals: Sequence[Path], folder: Path, patchelf: Path) -> None:
    """Copy the libraries of these programs, and their loader, into ``folder``; the first one must be a program.

    Raises UserError if a library is missing on this machine.
    """
    loader = Path(
        run_program((str(patchelf), "--print-interpreter", str(originals[0])), "read a program's loader").strip()
    )
    needed = _libraries(originals)
    folder.mkdir()
    for library in needed | find_later_libraries(needed):
        if library.name != loader.name:
            shutil.copy(library, folder / library.name)
            remove_rpath(folder / library.name, patchelf)
    seal_library(folder / LIBC, glibc_sealing.LIBC_PATHS)
    shutil.copy(loader, folder / LOADER)
    seal_library(folder / LOADER, glibc_sealing.LOADER_PATHS)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    for program in programs:
        listed = run_program(("ldd", str(program)), f"list the libraries of {program.name}")
        if "not found" in listed:
            raise UserError(f"{program} lacks libraries on this machine:\n{listed}")
        found.update(Path(path) for path in LISTED_LIBRARY.findall(listed))
    return found


def find_later_libraries(needed: Iterable[Path]) -> set[Path]:
    """Return the libraries that glibc loads when a thread ends early; otherwise they would come from the container."""
    candidates = (each.with_name("libgcc_s.so.1") for each in needed if each.name == LIBC)
    return {each for each in candidates if each.exists()}


def seal_library(
    library: Path, wanted: Sequence[glibc_sealing.GlibcPath], folder: bytes = glibc_sealing.TOOLCHAIN
) -> None:
    """Seal a copied library in place; ``folder`` is where its paths will be."""
    sealed = glibc_sealing.seal_program(library.name, library.read_bytes(), *wanted, folder=folder)
    library.write_bytes(sealed)
