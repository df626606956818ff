"""Runs Python as another local user of this machine, one without rights."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_BECOME = "\nimport os\nos.setgroups([])\nos.setgid({gid})\nos.setuid({uid})\nos.chdir('/')\n"


def run_as_nobody(imports: str, code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Return what ``code`` printed, run by the user ``nobody``; the environment holds ``env`` and nothing else.

    ``imports`` run before, because another user may not be able to read this interpreter's packages.  Raises
    CalledProcessError if it failed."""
    nobody = pwd.getpwnam("nobody")
    become = _BECOME.format(gid=nobody.pw_gid, uid=nobody.pw_uid)
    command = [sys.executable, "-c", imports + become + code, *arguments]
    return subprocess.run(
        command, env=env or {}, check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()
