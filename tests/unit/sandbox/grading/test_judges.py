"""If these fail, a task whose tests ask a model without a network trains or is evaluated at reward 0, or one that could
be graded is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.judges import find_unreachable_judges
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.network_policy import NetworkPolicy
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_containers import TaskService
from sandbox.tasks.task_network import ONLINE

JUDGE = b'[judge]\njudge = "anthropic/claude-sonnet-4-5"\n[[criterion]]\ndescription = "It is clear."\n'
CALL = "uvx --from 'harbor-rewardkit==0.2.3' rewardkit /tests"
TESTS = {"checks.py": b"", "reward.toml": b"[[reward]]\nname = 'a'\n", "style/quality.toml": JUDGE}


def asked(script: str, tests: dict[str, bytes] = TESTS) -> list[str]:
    task = Task("a", "b", run_tests=f"#!/bin/bash\n{script}\n", tests=tests)
    return [what for what, _ in find_unreachable_judges(task)]


@pytest.mark.parametrize(
    "script",
    [
        CALL,
        "rewardkit /tests",
        "python3 -m rewardkit /tests/style --workspace /app",
        "cd /tests\nREWARDKIT_MODEL=x rewardkit .",
        "uv tool install -q harbor-rewardkit && timeout 60 rewardkit $TEST_DIR 2>&1 | tee /logs/verifier/log.txt",
        "main() { rewardkit /tests/; }\nmain",
        "if rewardkit /tests; then echo done; fi",
        "bash /tests/run.sh",
    ],
)
def test_a_judge_that_the_tests_ask_without_a_network_is_named(script: str):
    tests = {**TESTS, "run.sh": f"source /tests/run.sh\n{CALL}\n".encode()}
    assert asked(script, tests) == ["tests/style/quality.toml asks a judge of rewardkit"]


@pytest.mark.parametrize(
    "script",
    [
        "pytest /tests",
        "rewardkit /tests/code",
        f'if [ -n "$ANTHROPIC_API_KEY" ]; then {CALL}; fi',
        f'[ -z "$ANTHROPIC_API_KEY" ] || {CALL}',
        f"# {CALL}\necho rewardkit /tests\npytest /tests",
        "if (",
    ],
)
def test_a_judge_that_the_tests_need_not_ask_is_no_problem(script: str):
    assert not asked(script)


def test_only_a_network_or_a_service_can_be_a_judge():
    task = Task("a", "b", run_tests=CALL, tests=TESTS, network=ONLINE)
    stepwise = replace(
        task, id="c", steps=(TaskStep("one", "do", run_tests=CALL, tests=TESTS),), run_tests="", tests={}
    )
    dataset = Dataset((task, stepwise, Task("d", "")), ())
    offline = dataset.with_network(NetworkPolicy.NONE, "--network").without(find_unreachable_judges)
    assert [each.id for each in offline.tasks] == ["d"]
    assert [each.what for each in offline.problems] == [
        "tests/style/quality.toml asks a judge of rewardkit",
        "step one: tests/style/quality.toml asks a judge of rewardkit",
    ]
    assert all("--network task or sandbox.network" in each.why for each in offline.problems)
    assert not dataset.with_network(NetworkPolicy.TASK, "--network").without(find_unreachable_judges).problems
    assert not [*find_unreachable_judges(Task("a", "", run_tests=CALL, tests=TESTS, services=(TaskService("llm"),)))]
