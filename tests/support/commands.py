"""Our commands as a script calls them: a process, one JSON object, an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    said: dict[str, Any]
    """The one object on standard output."""
    stderr: str


def run_json(module: str, *arguments: object) -> Done:
    """Run ``python -m module … --json``.  Fails unless there is exactly one object, on one line."""
    command = [sys.executable, "-m", module, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = done.stdout.splitlines()
    return Done(done.returncode, json.loads(line), done.stderr)
