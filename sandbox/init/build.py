"""Provides PID 1 and its builtin for bash: from the wheel, or compiled once and named by digest and architecture."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.errors import UserError

FOLDER = Path(__file__).parent
_FLAGS = ("-O2", "-Wall", "-Wextra", "-Wno-unused-result")
STATIC_FLAGS = (*_FLAGS, "-static")
"""Flags of a program that runs in any image."""
_BUILTIN_FLAGS = (*_FLAGS, "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector", "-Wl,-z,nodelete")
"""It takes what it needs from the bash that loads it, whatever libc that has, and stays when its name is removed."""


class InitPrograms(NamedTuple):
    """The files that :mod:`sandbox.toolchain` mounts."""

    init: Path
    """PID 1: a static program."""
    agent_input: Path
    """The builtin that a shell's bash loads (bash/agent_input.c)."""


def _digest() -> str:
    whole = hashlib.sha256(repr((STATIC_FLAGS, _BUILTIN_FLAGS)).encode())
    for each in sorted((*FOLDER.glob("**/*.c"), *FOLDER.glob("*.h"))):
        whole.update(each.read_bytes())
    return whole.hexdigest()[:12]


class NoCompiler(UserError):
    """A program of ours must be compiled, but there is no C compiler."""


def build_init(cache: Path) -> InitPrograms:
    """Return the programs, from the wheel or from ``cache``, where they are compiled if absent. Raises NoCompiler."""
    name = f"init-{_digest()}-{platform.machine()}"
    for folder in (FOLDER, cache):
        made = InitPrograms(folder / name, folder / f"{name}.so")
        if all(each.exists() for each in made):
            return made
    made = InitPrograms(cache / name, cache / f"{name}.so")
    compile_program("their PID 1", _BUILTIN_FLAGS, FOLDER / "bash", made.agent_input)
    compile_program("their PID 1", STATIC_FLAGS, FOLDER, made.init)
    return made


def compile_program(what: str, flags: Sequence[str], sources: Path, target: Path) -> None:
    """Compile the C files of a folder into ``target``, which is complete or absent; ``what`` it is to sandboxes.

    Raises UserError: NoCompiler if there is no compiler.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler(
            f"sandboxes need a C compiler once, to build {what}, because this installation has none for "
            f"{platform.machine()}: apt-get install gcc libc6-dev"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=target.parent, prefix=".init-")
    os.close(handle)
    try:
        command = [compiler, *flags, "-o", made, *map(str, sorted(sources.glob("*.c")))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(
                f"{compiler} could not build {sources} (a static libc is needed: apt-get install gcc "
                f"libc6-dev):\n{done.stderr.strip()[-2000:]}"
            )
        Path(made).chmod(0o755)
        Path(made).rename(target)
    finally:
        Path(made).unlink(missing_ok=True)
