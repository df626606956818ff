"""Finds in a task's tests that its answer is something that runs: a server, a job, a process. Pure.

Such an answer can only be graded beside its processes (:attr:`~sandbox.tasks.task_grading.GradingLevel.LIVE`). The
evidence is connections to this machine and looks at its processes, read from the text of the tests: a guess in both
directions, and what a task says itself comes first. Where the tests start something, they look at that, unless the
instruction says that something is to be left running.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sandbox.tasks.live_calls import read_python
from sandbox.tasks.live_commands import MOST_CHARS, LiveFindings, read_commands
from sandbox.tasks.task_grading import GradingLevel

TEST_SCRIPT = "the test script"
_SHOWN = 100
_LEFT_RUNNING = re.compile(
    r"\b(?:leave|leaves|keep|keeps)\s+(?:\S+\s+){1,4}running\b|\bruns? in the background\b"
    r"|\b(?:must|should|has to|needs to)\s+(?:also |still )?(?:be|keep|stay|remain)\s+(?:\w+\s+)?running\b",
    re.IGNORECASE,
)


_EMBEDDED_PYTHON = re.compile(
    r"\bpython[\d.]*\s(?:[^\n;|&]{0,400}\s)?-c\s*(?P<quote>['\"])(?P<code>.*?)(?<!\\)(?P=quote)"
    r"|\bpython[\d.]*\b[^\n]{0,400}<<-?[ \t]*(?P<mark>['\"]?)(?P<end>\w+)(?P=mark)[^\n]{0,400}\n",
    re.DOTALL,
)
"""Python code in a shell script: an argument of ``-c``, or the line before a here-document."""
_FIRST_WORD = re.compile(r"^[ \t]*(\w+)", re.MULTILINE)


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
    """Return the evidence in the test script and in the shell and Python files beside it, without repeats."""
    texts = {path: data.decode(errors="replace") for path, data in tests.items() if path.endswith((".py", ".sh"))}
    found = {TEST_SCRIPT: _read_script(run_tests)}
    found |= {path: read_python(text) if path.endswith(".py") else _read_script(text) for path, text in texts.items()}
    starting = {path for path, each in found.items() if each.starts}
    if _LEFT_RUNNING.search(instruction):
        starting.clear()
    if TEST_SCRIPT in starting or any(path.endswith("conftest.py") for path in starting):
        return ()
    helpers = {part for path in starting if path.endswith(".py") for part in path.removesuffix(".py").split("/")}
    own = [path for path in found if path not in starting and not _imported(texts.get(path, "")) & helpers]
    return tuple(dict.fromkeys(LiveEvidence(path, _shorten(each)) for path in own for each in found[path].looks))


def _read_script(script: str) -> LiveFindings:
    """Read a script of a shell, with the Python in it, or of Python."""
    if re.match(r"#!.*\bpython", script):
        return read_python(script)
    script = script[:MOST_CHARS]
    parts = [read_commands(script)]
    parts += [read_python(code) for code in _embedded_python(script)]
    return LiveFindings(tuple(look for part in parts for look in part.looks), any(part.starts for part in parts))


def _embedded_python(script: str) -> Iterator[str]:
    ends: dict[str, list[int]] = {}
    for word in _FIRST_WORD.finditer(script):
        ends.setdefault(word[1], []).append(word.start())
    at = 0
    while found := _EMBEDDED_PYTHON.search(script, at):
        at = found.end()
        if found["code"] is not None:
            yield found["code"]
            continue
        places = ends.get(found["end"], [])
        index = bisect_left(places, at)
        if index < len(places):
            yield script[at : places[index]]
            at = places[index]


def _imported(source: str) -> set[str]:
    """Return the modules that a Python file imports."""
    return set(re.findall(r"^[ \t]*(?:import|from)\s+(\w+)", source, re.MULTILINE))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
