"""If these fail, a run whose canaries lied or fell silent counts, or an honest one does not."""

from __future__ import annotations

import pytest

from sandbox.grading.canaries import Canaries, CanaryRecord, CanaryVerdict, plan_canaries
from sandbox.grading.canary_conflicts import find_canary_conflict
from sandbox.grading.grading_run import GradingRun
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import GradedTest, GradingOutcome, GradingVerdict
from sandbox.tasks.task import Task
from sandbox.toolchain.in_container import canary_proofs
from sandbox.toolchain.in_container.canary_proofs import LIED, next_secret
from sandbox.toolchain.in_container.layout import IMAGE_CANARIES
from sandbox.toolchain.in_container.session_outcome import SessionOutcome
from sandbox.validation.task_warnings import find_task_warnings

SECRETS = ["first"]
for _ in range(3):
    SECRETS.append(next_secret(SECRETS[-1]))
FIRST, SECOND, THIRD, _ = SECRETS


PASSED, FAILED, OPEN = SessionOutcome


def proof_of(secret: str, outcome: SessionOutcome = PASSED) -> str:
    return canary_proofs.proof_of(secret, outcome)


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([FIRST], CanaryVerdict.TRUE),
        ([SECOND, proof_of(FIRST)], CanaryVerdict.TRUE),
        ([THIRD, proof_of(SECOND), proof_of(FIRST)], CanaryVerdict.TRUE),
        ([SECOND], CanaryVerdict.SILENT),
        ([THIRD, proof_of(FIRST)], CanaryVerdict.SILENT),
        ([THIRD, proof_of(SECOND)], CanaryVerdict.SILENT),
        ([SECOND, proof_of("guessed")], CanaryVerdict.SILENT),
        (["guessed", proof_of(FIRST)], CanaryVerdict.SILENT),
        ([], CanaryVerdict.SILENT),
        ([SECOND, LIED], CanaryVerdict.LIED),
        ([THIRD, proof_of(FIRST), LIED], CanaryVerdict.LIED),
    ],
)
def test_every_session_that_has_begun_must_prove_that_its_canaries_failed(lines: list[str], verdict: CanaryVerdict):
    assert Canaries(FIRST).judge("\n".join(lines).encode()).verdict is verdict


@pytest.mark.parametrize(
    ("outcomes", "spotless", "verdict"),
    [
        ([FAILED], True, CanaryVerdict.UNREPORTED),
        ([FAILED], False, CanaryVerdict.TRUE),
        ([PASSED], True, CanaryVerdict.TRUE),
        ([OPEN], True, CanaryVerdict.TRUE),
        ([FAILED, PASSED], True, CanaryVerdict.TRUE),
        ([], True, CanaryVerdict.TRUE),
    ],
    ids=["forged", "reported", "passed", "skipped", "one of two sessions, whose reports may be hidden", "no session"],
)
@pytest.mark.parametrize("trusts_reward", [False, True])
def test_a_failure_of_the_only_session_must_be_in_the_reports(
    outcomes: list[SessionOutcome], spotless: bool, verdict: CanaryVerdict, trusts_reward: bool
):
    proofs = [proof_of(secret, each) for secret, each in zip(SECRETS, outcomes, strict=False)]
    record = Canaries(FIRST).judge("\n".join((SECRETS[len(outcomes)], *proofs)).encode())
    assert record.outcomes == tuple(outcomes)
    assert GradingRun(spotless=spotless).with_canaries(record, trusts_reward=trusts_reward).canaries is verdict


ALONE = GradingVerdict((GradedTest("reward", GradingOutcome.PASSED),), {"reward": 1.0})
MISSING = GradingVerdict((GradedTest("test_a", GradingOutcome.MISSING),), {"reward": 1.0})


@pytest.mark.parametrize(
    ("verdict", "alone", "record", "counts"),
    [
        (MISSING, ALONE, CanaryRecord(CanaryVerdict.TRUE, (PASSED,)), ALONE),
        (MISSING, ALONE, CanaryRecord(CanaryVerdict.TRUE, (PASSED, FAILED)), MISSING),
        (MISSING, ALONE, CanaryRecord(CanaryVerdict.TRUE, (OPEN,)), MISSING),
        (MISSING, ALONE, CanaryRecord(CanaryVerdict.TRUE), MISSING),
        (MISSING, ALONE, CanaryRecord(CanaryVerdict.SILENT), None),
        (MISSING, None, CanaryRecord(CanaryVerdict.TRUE, (PASSED,)), MISSING),
        (None, ALONE, CanaryRecord(CanaryVerdict.TRUE, (PASSED,)), None),
    ],
    ids=["passed", "one failed", "skipped", "no pytest", "ended early", "named by reports", "void"],
)
def test_a_reward_counts_alone_if_no_report_names_a_test_and_pytest_proves_that_all_passed(
    verdict: GradingVerdict | None, alone: GradingVerdict | None, record: CanaryRecord, counts: GradingVerdict | None
):
    assert GradingRun(verdict, reward_alone=alone).with_canaries(record, trusts_reward=False).verdict == counts


@pytest.mark.parametrize("outcome", [(), (OPEN,), (FAILED,)])
def test_a_reward_needs_no_proof_where_nothing_of_the_agents_runs_in_the_tests(outcome: tuple[SessionOutcome, ...]):
    record = CanaryRecord(CanaryVerdict.TRUE, outcome)
    for given, spotless in ((MISSING, False), (ALONE, True)):
        run = GradingRun(given, spotless=spotless, reward_alone=ALONE).with_canaries(record, trusts_reward=True)
        assert (run.verdict, run.canaries) == (ALONE, CanaryVerdict.TRUE)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((FAILED,), CanaryVerdict.UNREPORTED),
        ((OPEN,), CanaryVerdict.UNPROVEN),
        ((PASSED,), CanaryVerdict.TRUE),
        ((), CanaryVerdict.TRUE),
        ((OPEN, PASSED), CanaryVerdict.TRUE),
    ],
)
def test_a_reward_without_any_names_is_void_if_the_only_session_does_not_prove_it(
    outcomes: tuple[SessionOutcome, ...], verdict: CanaryVerdict
):
    run = GradingRun(ALONE, spotless=True, reward_alone=ALONE)
    assert run.with_canaries(CanaryRecord(CanaryVerdict.TRUE, outcomes), trusts_reward=False).canaries is verdict


LEAVES = "import os\ndef pytest_sessionfinish(exitstatus):\n    os._exit(exitstatus)"
EXECUTES = "from os import execv as run\nif 1:\n    run('/bin/pytest', ['pytest'])"
LIMITS = "def test_a(): resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("conftest.py", "def pytest_runtest_logreport(report): ...", "pytest_runtest_logreport in conftest.py"),
        ("conftest.py", LEAVES, "os._exit in conftest.py"),
        ("conftest.py", EXECUTES, "os.execv in conftest.py"),
        ("test_a.py", LIMITS, "setrlimit(resource.RLIMIT_FSIZE in test_a.py"),
        ("pytest.ini", "[pytest]\ntimeout_method = thread", "timeout_method = thread in pytest.ini"),
        (
            "test_a.py",
            "@mark.timeout(3, method='thread')\ndef test_a(): ...",
            "mark.timeout(3, method='thread') in test_a.py",
        ),
        ("", "pytest --timeout-method=thread", "timeout-method=thread in its script"),
        ("", "ulimit -f 0; pytest", "ulimit -f 0 in its script"),
        ("test_a.py", LIMITS.replace("a():", "a(): run(preexec_fn=limit)\ndef limit():"), ""),
        ("test_a.py", LEAVES.replace("pytest_sessionfinish", "test_child"), ""),
        ("pytest.ini", "[pytest]\ntimeout_method = signal", ""),
    ],
)
def test_tests_that_would_count_the_canaries_or_end_pytest_have_none(file: str, text: str, why: str):
    task = Task("t", "", tests={file: text.encode()}) if file else Task("t", "", run_tests=text)
    assert find_canary_conflict(task) == why
    assert (plan_canaries(task) is None) is bool(why)
    assert any(why in each for each in find_task_warnings(task) if "canaries, because" in each) is bool(why)


@pytest.mark.parametrize(
    ("given", "isolation", "path"),
    [
        ({}, Isolation.TOOLCHAIN, None),
        ({}, Isolation.IMAGE, IMAGE_CANARIES),
        ({"PYTHONPATH": ""}, Isolation.IMAGE, IMAGE_CANARIES),
        ({"PYTHONPATH": "/a:/b"}, Isolation.IMAGE, f"/a:/b:{IMAGE_CANARIES}"),
    ],
)
def test_an_images_python_finds_the_canaries_after_its_own_modules(
    given: dict[str, str], isolation: Isolation, path: str | None
):
    assert Canaries().variables(given, isolation).get("PYTHONPATH") == path
