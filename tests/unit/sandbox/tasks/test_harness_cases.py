"""If these fail, the comparison with Harbor compares other tasks than it says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sandbox.tasks.formats.folders import load_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from tools.harness_comparison.__main__ import ComparedRewards, markdown_table, write_case
from tools.harness_comparison.cases import CASES, ComparisonCase


def test_every_case_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_is_a_task_that_can_be_used(case: ComparisonCase, tmp_path: Path) -> None:
    write_case(case, tmp_path / case.name, "longshore/base")
    assert load_task_folder(HARBOR, tmp_path / case.name).problems == ()


@pytest.mark.parametrize(
    ("differs", "harbor", "ours", "expected"),
    [
        ("", "1", "1", True),
        ("", "1", "0", False),
        ("why", "RewardFileNotFoundError", "0", True),
        ("why", "1", "1", False),
    ],
)
def test_a_reward_may_differ_only_where_the_case_says_why(differs: str, harbor: str, ours: str, expected: bool) -> None:
    compared = ComparedRewards(ComparisonCase("a", "true", differs=differs), harbor, ours)
    assert compared.is_expected is expected
    assert markdown_table([compared]).endswith(f"| a | {harbor} | {ours} | {differs} |")
