"""If these fail, the wrong script runs as the tests, or missing or endless output counts as a pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.grading.grading_run import judge_run
from sandbox.grading.hidden_tests import files_for_tests, folders_for_tests, script_path
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import GradingReport
from sandbox.session.files import FileTooLarge
from sandbox.tasks.task import Task

PLAIN = {"pytest.ini": b"[pytest]\n"}
OURS, OTHER = b"#!/bin/sh\n. /tests/test.sh\n", b"echo PASSED a"
PASSED = b'{"results": {"tests": [{"name": "a", "status": "passed"}]}}'


class FakeAgentContainer:
    """A container with these files; reading a longer one raises FileTooLarge."""

    def __init__(self, **files: bytes) -> None:
        self.files = files

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        data = self.files.get(path.strip("/").partition(".")[0])
        if data is None:
            raise FileNotFoundError(path)
        if len(data) > max_bytes:
            raise FileTooLarge(f"{path} has more than {max_bytes} bytes")
        return data


@pytest.mark.parametrize(
    ("bench", "outcomes", "why"),
    [
        (FakeAgentContainer(ctrf=PASSED), ["a passed"], ""),
        (FakeAgentContainer(ctrf=b"", reward=b"1"), ["reward passed"], ""),
        (FakeAgentContainer(ctrf=b"", reward=b""), [], "wrote none of /ctrf.json, /reward.txt"),
        (FakeAgentContainer(), [], "wrote none of"),
        (FakeAgentContainer(ctrf=b" " * (5 << 20) + PASSED, reward=b"1"), [], "/ctrf.json has more than"),
    ],
)
async def test_empty_missing_and_oversized_reports_give_no_verdict(
    bench: FakeAgentContainer, outcomes: list[str], why: str
):
    task = Task("t", "", reports=("/ctrf.json", "/reward.txt"))
    run = await judge_run(task, GradingReport(), bench.read_file, "", exit_code=0, signalled=False)
    assert [f"{test.name} {test.outcome}" for test in (run.verdict.tests if run.verdict else ())] == outcomes
    assert why in run.note
    assert bool(why) == bool(run.note)


@pytest.mark.parametrize(
    ("tests", "there", "run", "harbor_runs"),
    [
        ({}, {"run-tests.sh": OURS, "test.sh": OURS, **PLAIN}, "run-tests.sh", "test.sh"),
        ({"run-tests.sh": OTHER}, {"run-tests.sh": OTHER, "test.sh": OURS, **PLAIN}, "test.sh", "test.sh"),
        ({"test.sh/": b""}, {"run-tests.sh": OURS, "test.sh/": b"", **PLAIN}, "run-tests.sh", "run-tests.sh"),
        (
            {"run-tests.sh": OTHER, "test.sh/x": OTHER},
            {"run-tests.sh": OTHER, "test.sh/x": OTHER, ".longshore-tests.sh": OURS, **PLAIN},
            ".longshore-tests.sh",
            ".longshore-tests.sh",
        ),
        (
            {"tox.ini": b"[pytest]"},
            {"run-tests.sh": OURS, "test.sh": OURS, "tox.ini": b"[pytest]"},
            "run-tests.sh",
            "test.sh",
        ),
        (
            {"tox.ini": b"[tox]"},
            {"run-tests.sh": OURS, "test.sh": OURS, "tox.ini": b"[tox]", **PLAIN},
            "run-tests.sh",
            "test.sh",
        ),
    ],
)
def test_the_script_runs_under_the_name_of_its_harness_unless_the_task_has_another_file_there(
    tests: dict[str, bytes], there: dict[str, bytes], run: str, harbor_runs: str
):
    task = Task("t", "", run_tests=OURS.decode(), tests=tests)
    of_harbor = replace(task, reports=("/logs/verifier/reward.txt",))
    assert files_for_tests(task, Isolation.TOOLCHAIN) == files_for_tests(of_harbor, Isolation.TOOLCHAIN) == there
    assert (script_path(task), script_path(of_harbor)) == (f"/tests/{run}", f"/tests/{harbor_runs}")


@pytest.mark.parametrize(
    ("script", "helper", "made"),
    [
        ("echo x > /logs/verifier/wanted", "", True),
        ('echo x > "/logs/verifier"/wanted', "", True),
        ('echo x > "/logs"/"verifier"/wanted', "", True),
        ("true", "echo x > '/logs/verifier/wanted'", True),
        ("true", 'echo x > /logs/"verifier/wanted"', True),
        ("echo /logs", "echo verifier", False),
    ],
)
def test_the_verifiers_folder_is_recreated_for_every_script_that_names_it(script: str, helper: str, made: bool):
    task = Task("t", "", run_tests=f"#!/bin/bash\n{script}\n", tests={"helper.sh": helper.encode()})
    assert ("/logs/verifier" in folders_for_tests(task)) is made
