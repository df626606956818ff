"""Terminal tasks for practice, for the recipes whose documents have task folders: names to sort, with hidden tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from launch.bench.recipes.attempts import Attempt, CommandAttempt
from sandbox.tasks.task import Task

COUNT = 6
"""Number of tasks, few enough for many epochs in one run."""
_NAMES = ("amber", "birch", "cedar", "dahlia", "elder", "fern", "ginger", "hazel", "iris", "juniper")
_TESTS = """\
from pathlib import Path

NAMES = Path("/app/names.txt").read_text().split()


def read_sorted():
    return Path("/app/sorted.txt").read_text().split()


def test_names_are_in_order():
    assert read_sorted() == sorted(read_sorted()) and set(read_sorted()) == set(NAMES)


def test_each_name_is_there_once():
    assert sorted(read_sorted()) == sorted(set(NAMES))
"""
_EXPECTED = ("test_names_are_in_order", "test_each_name_is_there_once")
_TERMINAL_BENCH = """\
#!/bin/bash
uv venv .tbench-testing
source .tbench-testing/bin/activate
uv pip install pytest==8.4.1
uv run pytest $TEST_DIR/test_outputs.py -rA
"""
_HARBOR = """\
#!/bin/bash
uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
_REPORTS = ("/logs/verifier/ctrf.json", "/logs/verifier/reward.txt")


def terminal_bench_tasks() -> list[Task]:
    return [_make_task(number, _TERMINAL_BENCH) for number in range(COUNT)]


def harbor_tasks() -> list[Task]:
    """Return the tasks with Harbor's test script and reports, and SETA's weights."""
    return [_make_task(number, _HARBOR, _REPORTS, dict.fromkeys(_EXPECTED, 0.5)) for number in range(COUNT)]


def _make_task(
    number: int, run_tests: str, reports: tuple[str, ...] = (), weights: dict[str, float] | None = None
) -> Task:
    return Task(
        id=f"sort-names-{number}",
        instruction="Write the names in /app/names.txt to /app/sorted.txt, in order and each of them once.",
        family="file-operations",
        files={"/app/names.txt": "".join(f"{name}\n" for name in _draw_names(number)).encode()},
        tests={"test_outputs.py": _TESTS.encode()},
        run_tests=run_tests,
        expected_tests=_EXPECTED,
        weights=weights or {},
        reports=reports,
        solution="sort -u names.txt > sorted.txt\n",
        metadata={"difficulty": "easy"},
        agent_timeout_s=60.0,
    )


def _draw_names(seed: int) -> list[str]:
    """Return five names, some of them twice, the last of the alphabet first."""
    drawn = random.Random(f"names {seed}")
    some = sorted(drawn.sample(_NAMES, 5), reverse=True)
    return [*some, *drawn.sample(some, 3)]


def attempt_terminal_task(_: Task) -> Sequence[Attempt]:
    """Return a right attempt, one that passes one test of two, and one that fails both."""
    return [
        CommandAttempt(f"{command} > sorted.txt")
        for command in ("sort -u names.txt", "sort names.txt", "cat names.txt")
    ]
