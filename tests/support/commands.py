"""Our commands as a script calls them: a process, one JSON object, an exit code."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.cli.command import Command


@dataclass(frozen=True, slots=True)
class JsonCommandResult:
    exit_code: int
    output: dict[str, Any]
    """The one object on standard output."""
    stderr: str


def run_json(module: str, *arguments: object) -> JsonCommandResult:
    """Run ``python -m module … --json``.  Fails unless there is exactly one object, on one line."""
    command = [sys.executable, "-m", module, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = done.stdout.splitlines()
    return JsonCommandResult(done.returncode, json.loads(line), done.stderr)


def call_json(capfd: pytest.CaptureFixture[str], module: str, *arguments: object) -> JsonCommandResult:
    """Like :func:`run_json` but in this process: a command that only refuses needs no process of its own."""
    runnable = importlib.import_module(module)
    if hasattr(runnable, "__path__"):
        runnable = importlib.import_module(f"{module}.__main__")
    command: Command[Any] = runnable.COMMAND
    stdout = os.dup(1)
    code = command.main([*map(str, arguments), "--json"])
    os.dup2(stdout, 1)  # the command has made it a copy of standard error
    os.close(stdout)
    captured = capfd.readouterr()
    (line,) = captured.out.splitlines()
    return JsonCommandResult(code, json.loads(line), captured.err)
