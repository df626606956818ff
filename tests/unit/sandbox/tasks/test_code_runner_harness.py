"""If these fail, a program passes although its asserts were never executed."""

from __future__ import annotations

import ast
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox.tasks.code_runner import harness
from sandbox.tasks.code_runner.candidate_client import CandidateClient
from sandbox.tasks.code_runner.harness import run_assertions
from sandbox.tasks.code_runner.proxies import CandidateError
from sandbox.tasks.formats.code_rows import parse_cases

REACHED = [
    "assert f(2) == 4",
    "def check(candidate):\n    assert candidate(2) == 4",
    "def check(candidate):\n    assert candidate(2) == 4\ncheck(f)",
    "def test_a():\n    assert f(2) == 4",
    "from solution import f as g\n\ndef test_a():\n    from solution import f\n    assert g(2) == f(2) == 4",
    "def helper(n):\n    return f(n)\n\ndef test_a(n=2):\n    assert helper(n) == 4",
    "if __name__ == '__main__':\n    assert f(2) == 4",
    "def test_a():\n    assert f(2) == 4\n\nif __name__ == '__main__':\n    test_a()",
    "def main():\n    assert f(2) == 4\n\nif __name__ == '__main__':\n    raise SystemExit(main())",
    "def test_a(again=True):\n    assert f(2) == 4\n    return again and test_a(False)",
    "for n in (1, 2):\n    if f(n) != 2 * n:\n        assert False",
    "try:\n    assert f(2) == 4\nexcept ValueError:\n    assert False",
]
UNREACHED = [
    "def verify(candidate):\n    assert candidate(2) == 4",
    "def test_a(case):\n    assert f(case) == 4",
    "class TestA:\n    def test_a(self):\n        assert f(2) == 4",
    "async def test_a():\n    assert f(2) == 4",
]


class Program:
    """Stands for the candidate: these functions in a separate process."""

    def __init__(self, **functions: Any) -> None:
        self.functions, self.request_count = functions, 0

    def close(self):
        pass

    def start_server(self):
        return self

    def as_candidate_user(self):
        return nullcontext()

    def note_inspected(self, value: object) -> object:
        return value

    def as_instance(self, value: object) -> object:
        return value

    as_identity = get_type = as_instance
    classes = ()

    def get_name(self, name: str, is_class: bool):
        def ask(*args: object) -> object:
            self.request_count += 1
            if name not in self.functions:
                raise CandidateError(name)
            return self.functions[name](*args)

        return ask


def run(code: str, entry: str = "f", **functions: Any) -> bool:
    return run_assertions(cast("CandidateClient", Program(**functions)), code, entry)


@pytest.mark.parametrize("code", REACHED)
def test_asserts_are_executed_wherever_they_stand(code: str):
    assert run(code, f=lambda n: n * 2)
    with pytest.raises(AssertionError):
        run(code, f=lambda n: n)
    with pytest.raises(CandidateError):
        run(code)


@pytest.mark.parametrize(
    "code",
    [
        *UNREACHED,
        "for n in []:\n    assert f(n)",
        "if __name__ == 'x':\n    assert f(2)",
        "assert True",
        "f(2)\n\ndef verify():\n    assert f(2)",
    ],
)
def test_unexecuted_asserts_do_not_pass(code: str):
    assert not run(code, f=lambda n: n * 2)


def test_check_functions_need_a_known_entry_point():
    assert not run(REACHED[1], "", f=lambda n: n * 2)
    assert parse_cases(REACHED[1]) == []
    assert parse_cases(REACHED[1], "f") == [("asserts", REACHED[1], "f")]


@pytest.mark.parametrize("code", UNREACHED)
def test_a_row_with_only_unreachable_asserts_has_no_tests(code: str):
    assert parse_cases(code, "f") == parse_cases([code], "f") == []
    assert all(parse_cases(each, "f") for each in REACHED)


def test_a_test_may_expect_an_exception():
    def f(n: int) -> int:
        if n < 0:
            raise ValueError
        return n

    refuses = "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass"
    assert run(refuses, f=f)
    with pytest.raises(AssertionError):
        run(refuses, f=abs)


@pytest.mark.parametrize("left", ["SystemExit(1)", "BaseException"])
def test_a_test_that_exits_fails_and_the_next_case_runs(tmp_path, monkeypatch, capsys, left: str):
    monkeypatch.setattr(harness, "CandidateProgram", lambda _: Program(f=lambda n: n * 2))
    cases = [("asserts", f"assert f(2) == 4\nraise {left}", None), ("asserts", "assert f(2) == 4", None)]
    (tmp_path / "cases.txt").write_text(repr(cases))
    harness.main(tmp_path, tmp_path / "solution.py")
    assert capsys.readouterr().out.endswith("FAILED case_0\nPASSED case_1\n")


@pytest.mark.parametrize("path", sorted(Path(harness.__file__).parent.glob("[!_]*.py")), ids=lambda path: path.name)
def test_the_harness_uses_only_the_grammar_of_its_oldest_python(path: Path):
    ast.parse(path.read_text(), feature_version=(3, 9))
