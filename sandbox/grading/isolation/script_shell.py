"""Chooses the shell that runs a test script.  Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from sandbox.toolchain.in_container.layout import BASH, BUSYBOX

_INTERPRETER = re.compile(r"#!\s*+(?:/usr)?(?:/local)?/bin/(?:env\s++(?:-S\s++)?)?(\w++)\s*+(.*)")


class ScriptShell(NamedTuple):
    """The command that runs a script."""

    argv: tuple[str, ...]
    """Arguments before the script's path; empty if the script names an interpreter of the image."""
    is_toolchain: bool
    """True if the shell is one of the toolchain's."""


def choose_shell(script: str, *, verifier: bool) -> ScriptShell:
    """Choose the shell as Terminal-Bench does: bash, if the script names a shell or nothing.

    ``verifier``: whether the toolchain has its verifier half, and so a bash.
    """
    first = script.split("\n", 1)[0].strip()
    found = _INTERPRETER.fullmatch(first)
    name, options = (found[1], tuple(found[2].split())) if found else ("", ())
    if first.startswith("#!") and name not in ("bash", "sh", "dash", "ash"):
        return ScriptShell((), is_toolchain=False)
    if verifier:
        return ScriptShell((BASH, "--noprofile", "--norc", *options), is_toolchain=True)
    if name == "bash":
        return ScriptShell(("/bin/bash", "--noprofile", "--norc", *options), is_toolchain=False)
    return ScriptShell((BUSYBOX, "sh", *options), is_toolchain=True)
