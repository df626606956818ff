"""Checks whether the tests contain settings that pytest uses. Pure.

If not, pytest looks in the folders above, up to ``/``, which may hold the agent's. Whether a file counts depends on its
content: a ``pyproject.toml`` without a pytest section does not. Only the top folder counts: not all tests are below
any other.
"""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Mapping

EMPTY_SETTINGS = {"pytest.ini": b"[pytest]\n"}
"""Empty settings, which take precedence over others in the same folder."""


def has_pytest_settings(files: Mapping[str, bytes], *, newest: bool) -> bool:
    """Return whether one of the files, by path below the tests' folder, holds settings. ``newest``: pytest may be newer
    than the toolchain's and read TOML tables too."""
    return (
        "pytest.ini" in files
        or _has_section(files.get(".pytest.ini"), "pytest")
        or _has_table(files.get("pyproject.toml"), newest=newest)
        or _has_section(files.get("tox.ini"), "pytest")
        or _has_section(files.get("setup.cfg"), "tool:pytest")
    )


def _has_section(data: bytes | None, name: str) -> bool:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string((data or b"").decode())
    except (configparser.Error, ValueError):
        return False
    return parser.has_section(name)


def _has_table(data: bytes | None, *, newest: bool) -> bool:
    try:
        read = tomllib.loads((data or b"").decode())
    except (ValueError, RecursionError):
        return False
    match read:
        case {"tool": {"pytest": {"ini_options": {}}}}:
            return True
        case {"tool": {"pytest": {**native}}}:
            return newest and bool(native)
        case _:
            return False
