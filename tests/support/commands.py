"""Our commands as a script calls them: a process, one JSON object, an exit code."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.cli.command import Command


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


def call_json(capfd: pytest.CaptureFixture[str], module: str, *arguments: object) -> Done:
    """What ``run_json`` gives, from a call in this process: a command that only refuses needs no process of its own."""
    runnable = importlib.import_module(module)
    if hasattr(runnable, "__path__"):
        runnable = importlib.import_module(f"{module}.__main__")
    command: Command[Any] = runnable.COMMAND
    code = command.main([*map(str, arguments), "--json"])
    captured = capfd.readouterr()
    (line,) = captured.out.splitlines()
    return Done(code, json.loads(line), captured.err)
