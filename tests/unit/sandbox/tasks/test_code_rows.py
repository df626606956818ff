"""If these fail, a right program scores 0 because of the type of its answers, or a program can claim to be right.

The programs run here as the user who runs the tests; ``test_proofs_in_docker.py`` runs them in a sandbox.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.tasks.code_runner import candidate_program, harness
from sandbox.tasks.formats.code_rows import FORMAT, parse_cases
from sandbox.tasks.formats.rows import encode_row, read_row
from sandbox.tasks.problems import TaskProblems
from sandbox.validation.task_warnings import find_task_warnings
from tests.support.tasks.code_rows import CHEATS, ROWS


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(candidate_program, "AS_NOBODY", {"user": os.geteuid(), "group": os.getegid()})

    def scored(truth: object, program: str, entry: str = "") -> str:
        cases = parse_cases(truth, entry)
        assert cases
        (tmp_path / "cases.txt").write_text(repr(cases))
        (tmp_path / "program.py").write_text(program)
        harness.main(tmp_path, tmp_path / "program.py")
        return capsys.readouterr().out

    return scored


@pytest.mark.parametrize("name", ROWS)
def test_the_right_program_passes_and_the_wrong_one_fails(score, name: str):
    row = ROWS[name]
    scored = score(row.tests, row.right, row.entry)
    assert scored.endswith("\nPASSED case_0\n"), scored
    scored = score(row.tests, row.wrong, row.entry)
    assert scored.endswith("\nFAILED case_0\n"), scored


SLOW_CHEATS = {"other items again", "a capital's iterator with a list's method"}
"""They end by the time limit."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW_CHEATS else ()) for name in CHEATS]
)
def test_an_answer_that_forges_a_pass_fails(score, name: str):
    scored = score(*CHEATS[name])
    assert scored.endswith("\nFAILED case_0\n"), scored


@pytest.mark.parametrize("scored", ["(1, 2)", "range(1, 3)", "iter([1, 2])", "{1: 0, 2: 0}.keys()"])
def test_ordered_results_are_compared_as_lists_with_json_outputs(score, scored: str):
    truth = {"fn_name": "f", "inputs": [[0]], "outputs": [[1, 2]]}
    assert "PASSED" in score(truth, f"def f(x): return {scored}")
    assert "PASSED" in score(truth, f"class Solution:\n    def f(self, x): return {scored}")
    assert "PASSED" not in score(truth, "def f(x): return [2, 1]")


def test_the_functional_tests_of_code_r1_are_asserts(score):
    row = ROWS["leetcode by its entry point"]
    truth = {"functional": f"{row.tests}\n\ncheck({row.entry})"}
    assert "PASSED case_0" in score(truth, row.right)
    assert "FAILED case_0" in score(truth, row.wrong)


def test_names_of_leetcode_are_python_s_own_first(score):
    program = "class Solution:\n    def f(self, n): return pow(n, 2, 5) + (inf > n) + len(list(accumulate([n])))"
    assert "PASSED" in score({"fn_name": "f", "inputs": [[3]], "outputs": [[6]]}, program)


def test_a_program_gives_no_name_of_leetcode_as_its_own(score):
    assert "FAILED case_0" in score("assert gcd(4, 6) == 2", "class Solution: pass")


def test_warnings_are_about_a_row_s_own_tests():
    row: dict[str, object] = {
        "data_source": "code",
        "prompt": [{"role": "user", "content": "1?"}],
        "reward_model": {"ground_truth": "assert f(1) == 1"},
    }
    task = read_row(FORMAT, row, TaskProblems(Path("rows.jsonl:1")))
    assert not [each for each in find_task_warnings(task) if "code_runner" in each]


@pytest.mark.parametrize(("program", "why"), [("import nowhere", "nowhere"), ("def f(", "SyntaxError")])
def test_a_program_that_does_not_load_says_why(score, program: str, why: str):
    scored = score("assert f(1) == 1", program)
    assert why in scored
    assert "FAILED" in scored


def test_a_value_that_cannot_be_sent_to_the_answer_fails_with_the_reason(score):
    scored = score("class Node:\n    pass\nassert f(Node()) == 1", "def f(x): return 1")
    assert "Node does not cross to the answer" in scored
    assert "FAILED" in scored


@pytest.mark.parametrize(
    ("source", "family"),
    [("  ", "math"), ("AIME\t2024\n", "AIME 2024"), ("math/MATH-500 (level 5)", "math/MATH-500 (level 5)")],
)
def test_the_table_of_a_data_source_is_named_in_one_line(source: str, family: str):
    """An evaluation prints one line for each."""
    row: dict[str, object] = {
        "data_source": source,
        "prompt": [{"role": "user", "content": "1?"}],
        "ability": "math",
        "reward_model": {"ground_truth": "1"},
    }
    problems = TaskProblems(Path("rows.jsonl:1"))
    task = read_row(FORMAT, row, problems)
    assert problems.found == []
    assert task.family == family
    assert encode_row(FORMAT, task)["data_source"] == source
