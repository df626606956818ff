"""Our commands as a script calls them, in a process of their own or, where that is not the point, in the test's."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from protocol.cli.command import Command


class FinishedCommand(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


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
    """Like :func:`run_json` but in this process."""
    done = call_command(capfd, module, *arguments, "--json")
    (line,) = done.stdout.splitlines()
    return JsonCommandResult(done.returncode, json.loads(line), done.stderr)


def call_command(capfd: pytest.CaptureFixture[str], module: str, *arguments: object) -> FinishedCommand:
    """Run ``python -m module …`` in this process; what was printed before is not of the result."""
    runnable = importlib.import_module(module)
    if hasattr(runnable, "__path__"):
        runnable = importlib.import_module(f"{module}.__main__")
    command: Command[Any] = runnable.COMMAND
    capfd.readouterr()
    stdout = os.dup(1)
    code = command.main([*map(str, arguments)])
    os.dup2(stdout, 1)  # with --json the command has made it a copy of standard error
    os.close(stdout)
    return FinishedCommand(code, *capfd.readouterr())
