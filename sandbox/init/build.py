"""Provides PID 1: from the wheel, or compiled once and named by digest and architecture."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from protocol.errors import UserError

FOLDER = Path(__file__).parent
_FLAGS = ("-static", "-O2", "-Wall", "-Wextra", "-Wno-unused-result")


def sources() -> tuple[Path, ...]:
    """Return the C files for the compiler."""
    return tuple(sorted(FOLDER.glob("*.c")))


def _digest() -> str:
    whole = hashlib.sha256(repr(_FLAGS).encode())
    for each in (*sources(), *sorted(FOLDER.glob("*.h"))):
        whole.update(each.read_bytes())
    return whole.hexdigest()[:12]


class NoCompiler(UserError):
    """PID 1 must be compiled, but there is no C compiler."""


def build_init(cache: Path) -> Path:
    """Return the path of PID 1, from the wheel or from ``cache``, where it is compiled if absent. Raises NoCompiler."""
    name = f"init-{_digest()}-{platform.machine()}"
    target = cache / name
    for each in (FOLDER / name, target):
        if each.exists():
            return each
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler(
            "sandboxes need a C compiler once, to build their PID 1, because this installation has none for "
            f"{platform.machine()}: apt-get install gcc libc6-dev"
        )
    cache.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=cache, prefix=".init-")
    os.close(handle)
    try:
        command = [compiler, *_FLAGS, "-o", made, *map(str, sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(
                f"{compiler} could not build {FOLDER} (a static libc is needed: apt-get install gcc "
                f"libc6-dev):\n{done.stderr.strip()[-2000:]}"
            )
        Path(made).chmod(0o755)
        Path(made).rename(target)
    finally:
        Path(made).unlink(missing_ok=True)
    return target
