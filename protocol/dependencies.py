"""The packages that this Python has installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
EXIT_USER = 2
"""Exit code of a request that cannot be carried out as given (:mod:`protocol.cli.exit_codes`)."""


def require_packages(*names: str) -> None:
    """End the process with exit code 2 and the next command if a package is missing.

    Commands call this before anything else, as an import error does not say what to type.
    """
    if all(importlib.util.find_spec(name) is not None for name in names):
        return
    own = _ROOT / ".venv" / "bin" / "python"
    way = "run `make setup`, which puts them into .venv"
    if own.exists() and Path(sys.prefix) != own.parent.parent:
        way = f"use {own}, or type `. .venv/bin/activate` first"
    line = f"{sys.executable} does not have longshore's packages: {way}"
    sys.stderr.write(f"error: {line}\n")
    if "--json" in sys.orig_argv:
        sys.stdout.write(json.dumps({"error": line, "exit_code": EXIT_USER}) + "\n")
    raise SystemExit(EXIT_USER)


def installed_version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def longshore_version() -> str:
    """Return the version of the installed package, or ``0 (not installed)`` for a plain checkout."""
    return installed_version("longshore") or "0 (not installed)"
