"""If these fail, the comparison with Harbor compares other tasks than it says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sandbox.tasks.formats.folders import FolderFormat, load_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.formats.terminal_bench import FORMAT as TERMINAL_BENCH
from tools.harness_comparison.cases import HARBOR_CASES, TERMINAL_BENCH_CASES, ComparisonCase
from tools.harness_comparison.comparison import ComparedRewards, Harness, markdown_table
from tools.harness_comparison.field_cases import FIELD_CASES
from tools.harness_comparison.field_coverage import find_uncovered
from tools.harness_comparison.file_cases import FILE_CASES
from tools.harness_comparison.harnesses import Harbor, TerminalBench
from tools.harness_comparison.step_cases import STEP_CASES

BOTH = (
    (Harbor(Path("harbor")), HARBOR, (*HARBOR_CASES, *FIELD_CASES, *FILE_CASES, *STEP_CASES)),
    (TerminalBench(Path("tb")), TERMINAL_BENCH, TERMINAL_BENCH_CASES),
)


@pytest.mark.parametrize("cases", [BOTH[0][2], TERMINAL_BENCH_CASES], ids=["harbor", "terminal-bench"])
def test_every_case_has_a_name_of_its_own(cases: tuple[ComparisonCase, ...]) -> None:
    assert [name for name, count in Counter(case.name for case in cases).items() if count > 1] == []


@pytest.mark.parametrize(
    ("harness", "form", "case"),
    [pytest.param(harness, form, case, id=case.name) for harness, form, cases in BOTH for case in cases],
)
def test_each_case_is_a_task_that_can_be_used_or_names_what_it_cannot_follow(
    harness: Harness, form: FolderFormat, case: ComparisonCase, tmp_path: Path
) -> None:
    harness.write(case, tmp_path / case.name, "longshore/base")
    problems = load_task_folder(form, tmp_path / case.name).problems
    assert [case.refused in each.what for each in problems] == [True] * bool(case.refused)


@pytest.mark.parametrize(
    ("differs", "theirs", "ours", "expected"),
    [
        ("", "1", "1", True),
        ("", "1", "0", False),
        ("why", "RewardFileNotFoundError", "0", True),
        ("why", "1", "1", False),
    ],
)
def test_a_reward_may_differ_only_where_the_case_says_why(differs: str, theirs: str, ours: str, expected: bool) -> None:
    compared = ComparedRewards(ComparisonCase("a", "true", differs=differs), theirs, ours)
    assert compared.is_expected is expected
    assert markdown_table([compared], "x").endswith(f"| a | {theirs} | {ours} | {differs} |\n")


def test_a_key_of_harbor_without_a_case_is_found() -> None:
    fields = ["agent.user", "artifacts.exclude", "steps.agent.env", "steps.healthcheck.retries", "verifier.shell"]
    assert find_uncovered(fields, BOTH[0][2]) == ["steps.agent.env", "verifier.shell"]
