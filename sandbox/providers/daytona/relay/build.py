"""Provides the program that listens in a sandbox: from the wheel, or compiled once and named by digest and
architecture."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from sandbox.init.build import STATIC_FLAGS, compile_program

FOLDER = Path(__file__).parent


def build_relay(cache: Path) -> Path:
    """Return the program, from the wheel or from ``cache``, where it is compiled if absent.  Blocking.

    Raises UserError: NoCompiler if there is no compiler.
    """
    sources = (*sorted(FOLDER.glob("*.[ch]")),)
    digest = hashlib.sha256(repr((STATIC_FLAGS, [each.read_bytes() for each in sources])).encode()).hexdigest()[:12]
    name = f"relay-{digest}-{platform.machine()}"
    made = next((folder / name for folder in (FOLDER, cache) if (folder / name).exists()), cache / name)
    if not made.exists():
        compile_program("the relay of their harnesses", STATIC_FLAGS, FOLDER, made)
    return made
