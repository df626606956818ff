"""The test program of a code task. It runs in the sandbox, as root, on any Python from 3.9.

The candidate runs as user 65534 in a separate process, one for each case, and sees only arguments: expected values
stay here.  Test code runs as that user too, in the same working directory, so that both can share files and a link that
the candidate made leads nowhere that it could not go. What the candidate prints or returns is compared here
(:mod:`~sandbox.tasks.code_runner.candidate_client`), so it can neither claim a pass nor read one. A case of asserts
fails if no assert is reached or the candidate is never used. Prints a pytest summary of ``case_0`` …
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections import deque
from collections.abc import Iterator, KeysView, ValuesView
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

from sandbox.tasks.code_runner.candidate_client import CandidateClient
from sandbox.tasks.code_runner.candidate_program import CandidateProgram
from sandbox.tasks.code_runner.instrumentation import (
    COUNT_HOOK,
    IDENTITY_HOOK,
    INSPECTED_HOOK,
    OBJECT_HOOK,
    TYPE_HOOK,
    instrument_tests,
)
from sandbox.tasks.code_runner.object_inference import find_class_names
from sandbox.tasks.code_runner.tests_parser import (
    candidate_names,
    compared_names,
    imported_candidate_names,
    module_names,
    parse_test_code,
    uncalled_tests,
)


def same_text(printed: str, expected: str) -> bool:
    """Return whether two texts are equal but for white space at the ends of lines and of the text."""
    return [line.rstrip() for line in printed.rstrip().split("\n")] == [
        line.rstrip() for line in expected.rstrip().split("\n")
    ]


def as_list(value: object) -> object:
    """Turn every ordered collection in ``value`` into a list, as JSON has it."""
    if isinstance(value, (list, tuple, range, deque, KeysView, ValuesView, Iterator)):
        return [as_list(each) for each in cast("list[object]", value)]
    return value


def run_assertions(candidate: CandidateClient, code: str, entry: str) -> bool:
    """Run test code as a program, then the test functions that it leaves to be called.

    Each name that the code does not define is the candidate's, and ``entry`` is the function under test. Returns
    whether an asserting statement was reached and the candidate was used. Raises whatever a failed test raises.
    """
    tree = parse_test_code(code)
    uncalled = uncalled_tests(tree, entry)
    names = candidate_names(tree)
    modules = module_names(tree, names)
    wanted = {name: name for name in names - modules} | imported_candidate_names(tree)
    candidate.classes = find_class_names(tree)
    candidate.types = compared_names(tree)
    reached: list[None] = []
    space: dict[str, Any] = {}
    for name in modules:
        with suppress(ImportError):
            space[name] = importlib.import_module(name)
    for name, own in wanted.items():
        with suppress(NameError):
            space[name] = candidate.get_name(own, name in candidate.classes)
    space["__name__"] = "__main__"
    space[COUNT_HOOK] = lambda: reached.append(None)
    space[INSPECTED_HOOK] = candidate.note_inspected
    space[OBJECT_HOOK] = candidate.as_instance
    space[IDENTITY_HOOK] = candidate.as_identity
    space[TYPE_HOOK] = candidate.get_type
    instrumented = instrument_tests(tree, {*wanted, "candidate"}, entry)
    try:
        exec(compile(instrumented, "tests", "exec"), space)  # noqa: S102  the task's own tests
        for name in uncalled:
            space[name](*([candidate.get_name(entry, is_class=True)] if name == "check" else []))
    except SystemExit as error:
        if error.code:
            raise
    return bool(reached and candidate.request_count)


def run_case(program: CandidateProgram, kind: str, given: object, expected: object) -> bool:
    """Run one case as :mod:`sandbox.tasks.formats.code_rows` writes it: its kind, its input and its expected result."""
    if kind == "prints":
        return same_text(program.run_with_input(str(given)), str(expected))
    with closing(program.start_server()) as candidate:
        if kind == "asserts":
            with program.as_candidate_user():
                return run_assertions(candidate, str(given), str(expected or ""))
        name, args = cast("tuple[str, list[object]]", given)
        returned = as_list(candidate.get_entry_point(name)(*args))
    return returned == as_list(expected) or [returned] == as_list(expected)


def main(folder: Path, program: Path) -> None:
    """Run every case in ``folder/cases.txt`` against ``program`` and print the summary."""
    cases = ast.literal_eval((folder / "cases.txt").read_text(encoding="utf-8"))
    sys.stdout.write("short test summary info\n")
    for number, (kind, given, expected) in enumerate(cases):
        try:
            passed = run_case(CandidateProgram(program), kind, given, expected)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the candidate's and the tests' own: this case has failed
            passed = False
            sys.stdout.write(f"case_{number}: {type(error).__name__}: {str(error)[:200]!r}\n")
        sys.stdout.write(f"{'PASSED' if passed else 'FAILED'} case_{number}\n")
        sys.stdout.flush()
