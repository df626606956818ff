"""If these fail, a task that rewards doing nothing counts as proved."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from sandbox.errors import SandboxDestroyed
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import Isolation
from sandbox.grading.results.verdict import GradingOutcome, GradingReport, ReportedTest, judge_reports
from sandbox.session.shell import CommandResult
from sandbox.tasks.dataset import Dataset
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.commands import validate_tasks
from sandbox.validation.proofs import ProofEnvironment, ProofVerdict, TaskProof, prove_tasks

TASK = Task("t", "", run_tests="#!/bin/sh\n", solution="true\n", expected_tests=("a", "b"))
WEIGHED = replace(TASK, weights={"a": 3.0, "b": 1.0})


class SolvableSession:
    """Remembers whether it was solved."""

    solved = False

    async def write_files(self, *_: object, **__: object) -> None: ...

    async def run(self, *_: object) -> CommandResult:
        self.solved = True
        return CommandResult("", 0, 0, False, 1.0, False)


def graded(task: Task, passed: str, reward: float | None) -> GradeResult:
    reported = tuple(
        ReportedTest(name, GradingOutcome.PASSED if name in passed else GradingOutcome.FAILED) for name in "ab"
    )
    rewards = {} if reward is None else {"reward": reward}
    tests, judged = judge_reports(
        task.expected_tests, task.weights, (GradingReport(reported), GradingReport(rewards=rewards))
    )
    return GradeResult(tests, judged, "", GradingLevel.SAME, Isolation.TOOLCHAIN, timed_out=False, ms=1.0)


async def proof(task: Task, idle: str, reward: float | None = None) -> TaskProof:
    """Prove a task in which doing nothing passes ``idle`` tests and gets ``reward``, and the oracle everything."""

    @asynccontextmanager
    async def acquire(_: Task) -> AsyncGenerator[Any]:
        yield SolvableSession()

    async def grade(session: Any, _: Task) -> GradeResult:
        whole = None if reward is None else 1.0
        return graded(task, "ab", whole) if session.solved else graded(task, idle, reward)

    (made,) = await prove_tasks([task], ProofEnvironment(acquire, grade), 1)
    return made


@pytest.mark.parametrize(
    ("task", "idle", "reward", "verdict", "scores", "why"),
    [
        (TASK, "", None, ProofVerdict.PROVED, 0.0, ""),
        (TASK, "a", None, ProofVerdict.PROVED, 0.0, "1 of 2 tests pass without any work"),
        (TASK, "ab", None, ProofVerdict.NOOP_PASSES, 1.0, "doing nothing passes every test"),
        (WEIGHED, "", None, ProofVerdict.PROVED, 0.0, ""),
        (WEIGHED, "a", None, ProofVerdict.NOOP_PASSES, 0.75, "doing nothing scores 0.75"),
        (
            replace(WEIGHED, weights={"a": 0.0}),
            "a",
            None,
            ProofVerdict.PROVED,
            0.0,
            "1 of 2 tests pass without any work",
        ),
        (TASK, "a", 0.0, ProofVerdict.PROVED, 0.0, "1 of 2 tests pass without any work"),
        (TASK, "a", 0.25, ProofVerdict.NOOP_PASSES, 0.25, "doing nothing scores 0.25"),
        (WEIGHED, "a", 0.0, ProofVerdict.PROVED, 0.0, "1 of 2 tests pass without any work"),
    ],
)
async def test_doing_nothing_must_not_pass_by_the_tasks_scoring_rule(task, idle, reward, verdict, scores, why):
    made = await proof(task, idle, reward)
    assert (made.verdict, made.why, made.oracle, made.noop) == (verdict, why, 1.0, scores)


@pytest.mark.parametrize(
    ("answer", "verdict", "oracle"),
    [("\\frac{1}{2}", ProofVerdict.PROVED, 1.0), ("\\frac{1}{2", ProofVerdict.ORACLE_FAILS, 0.0)],
)
async def test_an_answer_task_is_proved_by_boxing_its_answer(answer: str, verdict: ProofVerdict, oracle: float) -> None:
    """No sandbox could prove it otherwise, and an unreachable answer would be trained."""
    found = await proof(Task("t", "", answer=answer), "")
    assert (found.verdict, found.oracle, found.noop) == (verdict, oracle, 0.0)


def tried(solving: str, wrecking: str = "") -> ProofEnvironment:
    """A script solves the task if its text contains ``solving``, and ends its sandbox if it contains ``wrecking``."""

    class Session(SolvableSession):
        async def write_files(self, files: Any, **_: object) -> None:
            (self.script,) = (data.decode() for path, data in files.items() if path == "/solution/solve.sh")
            self.also = set(files)

        async def run(self, *_: object) -> CommandResult:
            if wrecking and wrecking in self.script:
                raise SandboxDestroyed("it ended itself")
            self.solved = solving in self.script
            return CommandResult("", 0, 0, False, 1.0, False)

    @asynccontextmanager
    async def acquire(_: Task) -> AsyncGenerator[Any]:
        session = Session()
        yield session
        if "oracle" not in getattr(session, "script", "oracle"):
            assert session.also == {"/solution/solve.sh"}, "a foil was given the oracle's files"

    async def grade(session: Any, task: Task) -> GradeResult:
        return graded(task, "ab" if session.solved else "", None)

    return ProofEnvironment(acquire, grade)


FOILED = replace(
    TASK, solution="oracle\n", solution_files={"helper": b""}, foils={"near-1": "near\n", "cheat": "cheat\n"}
)


async def test_a_foil_that_passes_is_named():
    (right,) = await prove_tasks([FOILED], tried("oracle"), 1)
    assert (right.verdict, right.foils) == (ProofVerdict.PROVED, {"near-1": 0.0, "cheat": 0.0})
    (wrong,) = await prove_tasks(
        [replace(FOILED, foils={**FOILED.foils, "near-2": "oracle too\n"})], tried("oracle"), 1
    )
    assert (wrong.verdict, wrong.why, wrong.foils["near-2"]) == (
        ProofVerdict.FOIL_PASSES,
        "near-2 must not score 1",
        1.0,
    )


async def test_a_foil_that_destroys_its_sandbox_does_not_pass():
    (made,) = await prove_tasks([FOILED], tried("oracle", wrecking="cheat"), 1)
    assert (made.verdict, made.foils["cheat"]) == (ProofVerdict.PROVED, 0.0)


async def test_a_failed_solution_shows_the_last_lines_of_the_tests_output():
    environment = tried("right")
    log = "\n".join([*map(str, range(9)), "", f"\x1b[31mFAILED{'!' * 999}", ""])
    logging = replace(environment, grade=lambda session, task: _with_log(environment.grade(session, task), log))
    lines: list[str] = []

    def prover(on_proof: Callable[[TaskProof], None]) -> list[TaskProof]:
        on_proof(made)
        return [made]

    (made,) = await prove_tasks([replace(TASK, solution="wrong\n")], logging, 1)
    _, answer = validate_tasks(Dataset((TASK,), ()), prover, lines.append, strict=False)
    shown = [*"45678", f"FAILED{'!' * 194}"]
    assert lines[1:7] == [f"    {line}" for line in shown]
    assert cast("Any", answer["proofs"])[0]["log"] == tuple(shown)
    (solved,) = await prove_tasks([replace(TASK, solution="right\n")], logging, 1)
    assert (solved.verdict, solved.log) == (ProofVerdict.PROVED, ())


async def _with_log(grade: Awaitable[GradeResult], log: str) -> GradeResult:
    return replace(await grade, log=log)


@pytest.mark.parametrize(("passes", "advised"), [(GradingLevel.LIVE, True), (None, False)])
async def test_an_oracle_that_passes_only_at_level_live_gets_advice(passes: GradingLevel | None, advised: bool):
    levels: list[GradingLevel] = []

    @asynccontextmanager
    async def acquire(task: Task) -> AsyncGenerator[Any]:
        levels.append(task.grading)
        yield SolvableSession()

    async def grade(session: Any, task: Task) -> GradeResult:
        return graded(task, "ab" if session.solved and task.grading is passes else "", None)

    (made,) = await prove_tasks([replace(TASK, instruction="Do it.")], ProofEnvironment(acquire, grade), 1)
    assert (made.verdict, levels) == (ProofVerdict.ORACLE_FAILS, [GradingLevel.SAME] * 2 + [GradingLevel.LIVE])
    assert ("write `grading: live` in its longshore.yaml" in made.why) is advised
