"""Daytona's official SDK, which tests install into longshore's home, where it stays for the next test."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from sandbox.providers.daytona.sdk import PACKAGE, DaytonaSdk
from sandbox.toolchain.downloads import build_folder_once

VERSION = "0.226.1"


@contextmanager
def daytona_package(home: Path) -> Generator[DaytonaSdk | None]:
    """Yield the package; None if it is not installed and pip cannot get it."""
    if importlib.util.find_spec(PACKAGE) is not None:
        yield cast("DaytonaSdk", importlib.import_module(PACKAGE))
        return
    try:
        folder = build_folder_once(home / "test-packages" / f"{PACKAGE}-{VERSION}", _install)
    except subprocess.CalledProcessError:
        yield None
        return
    sys.path.append(str(folder))  # after what is installed here
    try:
        yield cast("DaytonaSdk", importlib.import_module(PACKAGE))
    finally:
        sys.path.remove(str(folder))


def _install(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--retries=0", f"--target={folder}", f"{PACKAGE}=={VERSION}"]
    subprocess.run(pip, check=True, timeout=500)
