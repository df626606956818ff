"""Bugs of a small repository, as SWE-SYNTH keeps them."""

from __future__ import annotations

from typing import Any

from sandbox.tasks.formats.swe_bugs.made_repository import EMPTY_TREE
from tools.swe_bugs import make_patch

RIGHT = {
    "calc.py": "def sub(a, b):\n    return a - b\n",
    "tests/test_calc.py": "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 2) == 1\n\n\n"
    "def test_zero():\n    assert sub(3, 0) == 3\n",
}
WRONG = RIGHT | {"calc.py": "def sub(a, b):\n    return a + b\n"}
TESTS = ["tests/test_calc.py::test_sub", "tests/test_calc.py::test_zero"]


def bug_row() -> dict[str, Any]:
    """Return a bug whose row holds the repository."""
    return {
        "task_id": 7,
        "source": {
            "swe_instance_id": "instance_example__calc",
            "repo": "example/calc",
            "base_commit": EMPTY_TREE,
            "dataset": "longshore",
            "fail_to_pass": TESTS[:1],
            "pass_to_pass": TESTS[1:],
        },
        "original": {"gold_patch": make_patch({}, RIGHT)},
        "bug": {
            "patch": make_patch(RIGHT, WRONG),
            "problem_statement": "It adds.",
            "bug_types": ["wrong-operator"],
            "target_tests": TESTS[:1],
        },
        "source_task_id": 7,
    }


def image_bug_row(image: str = "example/calc:1", test_command: str = "pytest -v --tb=no") -> dict[str, Any]:
    """Return a bug of the repository in an image, which has :data:`RIGHT` except for a line of its own."""
    row = bug_row()
    row["source"] |= {
        "base_commit": "0" * 40,
        "dataset": "github-pr",
        "docker_image": image,
        "test_command": test_command,
        "selected_test_files_to_run": "",
    }
    row["original"] = {"gold_patch": make_patch({**RIGHT, "calc.py": BASE}, RIGHT)}
    return row


BASE = "def sub(a, b):\n    return NotImplemented\n"
"""What ``calc.py`` is at the base commit."""
