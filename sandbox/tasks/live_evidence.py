"""Finds in a task's tests that its answer is something that runs: a server, a job, a process. Pure.

Such an answer can only be graded beside its processes (:attr:`~sandbox.tasks.task_grading.GradingLevel.LIVE`). The
evidence is connections to this machine and looks at its processes, read from the text of the tests: a guess in both
directions, and what a task says itself comes first. A connection to an address that a file does not give counts if any
file or variable of the tests names this machine. Where the tests start something that may be a server, they look at
that, unless the instruction says that something is to be left running.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sandbox.tasks.live_calls import read_python
from sandbox.tasks.live_code import OTHER_LANGUAGES, find_embedded_code, read_code
from sandbox.tasks.live_commands import MOST_CHARS, NAMES_THIS_MACHINE, LiveFindings, expand_variables, read_commands
from sandbox.tasks.task_grading import GradingLevel

TEST_SCRIPT = "the test script"
_READ = (".py", ".sh", *OTHER_LANGUAGES)
_SHOWN = 100
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
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


def suggest_grading(
    run_tests: str, tests: Mapping[str, bytes], instruction: str, env: Mapping[str, str] = _NO_VARIABLES
) -> GradingLevel:
    """Return the level for a task that names none; ``env``: variables of the tests."""
    return GradingLevel.LIVE if find_live_evidence(run_tests, tests, instruction, env) else GradingLevel.SAME


def find_live_evidence(
    run_tests: str, tests: Mapping[str, bytes], instruction: str, env: Mapping[str, str] = _NO_VARIABLES
) -> tuple[LiveEvidence, ...]:
    """Return the evidence in the test script and in the programs beside it, without repeats."""
    texts, found = _texts(tests), _read_tests(run_tests, tests, env)
    starting = {path for path, each in found.items() if each.starts}
    if _LEFT_RUNNING.search(instruction):
        starting.clear()
    if TEST_SCRIPT in starting or any(path.endswith("conftest.py") for path in starting):
        return ()
    helpers = {part for path in starting if path.endswith(".py") for part in path.removesuffix(".py").split("/")}
    own = [path for path in found if path not in starting and not _imported(texts.get(path, "")) & helpers]
    return _evidence(found, own)


def find_all_looks(
    run_tests: str, tests: Mapping[str, bytes], env: Mapping[str, str] = _NO_VARIABLES
) -> tuple[LiveEvidence, ...]:
    """Return what the tests look at that runs, what they may have started themselves included."""
    found = _read_tests(run_tests, tests, env)
    return _evidence(found, found)


def _evidence(found: Mapping[str, LiveFindings], paths: Collection[str]) -> tuple[LiveEvidence, ...]:
    return tuple(dict.fromkeys(LiveEvidence(path, _shorten(each)) for path in paths for each in found[path].looks))


def _texts(tests: Mapping[str, bytes]) -> dict[str, str]:
    return {path: data.decode(errors="replace") for path, data in tests.items() if path.endswith(_READ)}


def _read_tests(run_tests: str, tests: Mapping[str, bytes], env: Mapping[str, str]) -> dict[str, LiveFindings]:
    given = (run_tests, *env.values(), *(data[:MOST_CHARS].decode(errors="replace") for data in tests.values()))
    local = any(map(NAMES_THIS_MACHINE.search, given))
    found = {TEST_SCRIPT: _read_script(run_tests, local=local)}
    for path, text in _texts(tests).items():
        if path.endswith(".py"):
            found[path] = read_python(text, local=local)
        elif path.endswith(".sh"):
            found[path] = _read_script(text, local=local)
        elif path.rpartition("/")[2] in run_tests:  # material otherwise
            found[path] = read_code(text, local=local)
    return found


def _read_script(script: str, *, local: bool) -> LiveFindings:
    """Read a script of a shell, with the code in it, or of Python."""
    if re.match(r"#!.*\bpython", script):
        return read_python(script, local=local)
    parts, text = [read_commands(script, local=local)], expand_variables(script)
    for program, code in find_embedded_code(text):
        parts.append(read_python(code, local=local) if program == "python" else read_code(code, local=local))
    return LiveFindings(tuple(look for part in parts for look in part.looks), any(part.starts for part in parts))


def _imported(source: str) -> set[str]:
    """Return the modules that a Python file imports."""
    return set(re.findall(r"^[ \t]*(?:import|from)\s+(\w+)", source, re.MULTILINE))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
