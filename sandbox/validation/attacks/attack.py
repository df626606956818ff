"""What an attack is, and what it can know of a task.  Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox.grading.isolation.python_tests import Exposure, ExposureKind, find_python_exposures
from sandbox.tasks.task import Task

TEST_NAME = re.compile(rb"^[^\S\n]*+(?:async )?def (test_?\w+)", re.MULTILINE)
"""Matches the definition of a test."""
_IMPORTED = re.compile(r"import ([\w.]+)")
_PATH = re.compile(r"(?<![\w.-])(/[\w.-]+(?:/[\w.-]+)+)")
_WORD = re.compile(r"@(\w+)@")


@dataclass(frozen=True, slots=True)
class Attack:
    """What an agent runs instead of solving its task."""

    name: str
    command: str
    """The agent's one command, with these words for what it knows of the task: ``@app@`` the working directory,
    ``@say@`` a command that prints a summary in which all tests pass, ``@write@`` commands that write such reports,
    ``@folders@`` their folders, ``@forge@`` Python that does both, ``@module@`` and ``@program@`` the path of a
    module that the tests import and of a program that they start as their own user."""

    def plan(self, task: Task) -> str:
        """Return the command for a task; empty if the task has not what it needs."""
        values = {word: _KNOWN[word](task) for word in _WORD.findall(self.command)}
        if not all(values.values()):
            return ""
        return _WORD.sub(lambda found: values[found[1]], self.command)


def forged_summary(task: Task) -> str:
    """Return pytest's output for tests that all pass."""
    names = _test_names(task)
    passed = "\n".join(f"PASSED {name}" for name in names)
    return f"=== short test summary info ===\n{passed}\n=== {len(names)} passed in 0.10s ===\n"


def forged_reports(task: Task) -> dict[str, str]:
    """Return the content of each of the task's reports for tests that all pass, by path."""
    names = _test_names(task)
    ctrf = {"results": {"tests": [{"name": name, "status": "passed"} for name in names]}}
    junit = "".join(f'<testcase name="{name}"/>' for name in names)
    texts = {
        "reward.txt": "1\n",
        "reward.json": '{"reward": 1}\n',
        ".json": json.dumps(ctrf),
        ".xml": f"<testsuite>{junit}</testsuite>",
    }
    return {path: next((text for end, text in texts.items() if path.endswith(end)), "1\n") for path in task.reports}


def _test_names(task: Task) -> list[str]:
    """Return the names of the tests, which an agent that knows a public task knows too."""
    found = [name.decode() for data in task.tests.values() for name in TEST_NAME.findall(data)]
    return [*(task.expected_tests or dict.fromkeys(found))] or ["test_outputs"]


def _say(task: Task) -> str:
    return f"printf %s {shlex.quote(forged_summary(task))}"


def _write(task: Task) -> str:
    """Return commands that write forged reports; one that does nothing if the task has no reports."""
    return "; ".join(f"printf %s {shlex.quote(text)} > {path}" for path, text in forged_reports(task).items()) or "true"


def _folders(task: Task) -> str:
    return " ".join(sorted({str(PurePosixPath(path).parent) for path in task.reports}))


def _forge(task: Task) -> str:
    return f"""\
import os
for path, text in {forged_reports(task)!r}.items():
    try:
        os.path.lexists(path) and os.remove(path)
        open(path, "w").write(text)
    except OSError:
        pass
os.write(1, {forged_summary(task).encode()!r})
"""


def _module(task: Task) -> str:
    """Return the file of the first module that tests import by name, in the working directory."""
    names = (_IMPORTED.fullmatch(each.what) for each in _exposures(task, ExposureKind.IMPORTED))
    return next((f"{_app(task)}/{found[1].replace('.', '/')}.py" for found in names if found), "")


def _program(task: Task) -> str:
    """Return the first program that tests start by a path outside the system's folders."""
    texts = (each.what for each in _exposures(task, ExposureKind.STARTED))
    paths = (path for text in texts for path in _PATH.findall(text))
    return next((path for path in paths if not path.startswith(("/bin/", "/sbin/", "/usr/", "/tests/"))), "")


def _exposures(task: Task, kind: ExposureKind) -> list[Exposure]:
    return [each for each in find_python_exposures(task.tests) if each.kind is kind]


def _app(task: Task) -> str:
    return task.workdir.rstrip("/") or "/."


_KNOWN: Mapping[str, Callable[[Task], str]] = {
    "app": _app,
    "say": _say,
    "write": _write,
    "folders": _folders,
    "forge": _forge,
    "module": _module,
    "program": _program,
}
