"""Finds in a task's tests that its answer is something that runs: a server, a job, a process. Pure.

Such an answer can only be graded beside its processes (:attr:`~sandbox.tasks.task_grading.GradingLevel.LIVE`). The
evidence is connections to this machine and looks at its processes, read from the text of the tests: a guess in both
directions, and what a task says itself comes first. Where the tests start something, they look at that, unless the
instruction says that something is to be left running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from sandbox.tasks.live_calls import read_python
from sandbox.tasks.live_code import OTHER_LANGUAGES, find_embedded_code, find_given_connections, read_code
from sandbox.tasks.live_commands import LiveFindings, expand_variables, read_commands
from sandbox.tasks.task_grading import GradingLevel

TEST_SCRIPT = "the test script"
_READ = (".py", ".sh", *OTHER_LANGUAGES)
_SHOWN = 100
_LEFT_RUNNING = re.compile(
    r"\b(?:leave|leaves|keep|keeps)\s+(?:\S+\s+){1,4}running\b|\bruns? in the background\b"
    r"|\b(?:must|should|has to|needs to)\s+(?:also |still )?(?:be|keep|stay|remain)\s+(?:\w+\s+)?running\b",
    re.IGNORECASE,
)


class LiveEvidence(NamedTuple):
    """A part of the tests for which something must be running."""

    place: str
    """Path of the test file, or :data:`TEST_SCRIPT`."""
    what: str
    """The command or call, in one line, shortened."""


def suggest_grading(run_tests: str, tests: Mapping[str, bytes], instruction: str) -> GradingLevel:
    """Return the level for a task that names none."""
    return GradingLevel.LIVE if find_live_evidence(run_tests, tests, instruction) else GradingLevel.SAME


def find_live_evidence(run_tests: str, tests: Mapping[str, bytes], instruction: str) -> tuple[LiveEvidence, ...]:
    """Return the evidence in the test script and in the programs beside it, without repeats."""
    texts = {path: data.decode(errors="replace") for path, data in tests.items() if path.endswith(_READ)}
    found = {TEST_SCRIPT: _read_script(run_tests)}
    found |= {path: _read_file(path, text, run_tests) for path, text in texts.items()}
    starting = {path for path, each in found.items() if each.starts}
    if _LEFT_RUNNING.search(instruction):
        starting.clear()
    if TEST_SCRIPT in starting or any(path.endswith("conftest.py") for path in starting):
        return ()
    helpers = {part for path in starting if path.endswith(".py") for part in path.removesuffix(".py").split("/")}
    own = [path for path in found if path not in starting and not _imported(texts.get(path, "")) & helpers]
    return tuple(dict.fromkeys(LiveEvidence(path, _shorten(each)) for path in own for each in found[path].looks))


def _read_file(path: str, text: str, caller: str) -> LiveFindings:
    """Read a file of the tests, to which their script may give addresses."""
    if path.endswith(".py"):
        return _read_python(text, caller)
    if path.endswith(".sh"):
        return _read_script(text, caller)
    return read_code(text, caller) if path.rpartition("/")[2] in caller else LiveFindings()  # material otherwise


def _read_python(code: str, caller: str) -> LiveFindings:
    looks, starts = read_python(code)
    return LiveFindings(looks or tuple(find_given_connections(code, caller)), starts)


def _read_script(script: str, caller: str = "") -> LiveFindings:
    """Read a script of a shell, with the code in it, or of Python."""
    if re.match(r"#!.*\bpython", script):
        return read_python(script)
    parts, text = [read_commands(script, caller)], expand_variables(script)
    around = f"{text}\n{caller}"
    for program, code in find_embedded_code(text):
        parts.append(_read_python(code, around) if program == "python" else read_code(code, around))
    return LiveFindings(tuple(look for part in parts for look in part.looks), any(part.starts for part in parts))


def _imported(source: str) -> set[str]:
    """Return the modules that a Python file imports."""
    return set(re.findall(r"^[ \t]*(?:import|from)\s+(\w+)", source, re.MULTILINE))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
