"""Proves in real containers that a task can be solved, is not solved already, and rejects almost right attempts.

The oracle scores 1, doing nothing scores 0, and each foil less than 1, by the task's own rule (:func:`task_reward`).
Many tasks run at a time. Functions provide the sandboxes (:class:`ProofEnvironment`): how one is opened and how it is
it is graded.  One task's failure never ends another's proof.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from protocol.errors import InfraError, UserError
from protocol.plain_text import sanitize_text
from sandbox.errors import SandboxDestroyed, TaskFault
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.grader import grade_sandbox
from sandbox.grading.math_answer import is_right_answer
from sandbox.grading.steps import StepsGrade, task_reward
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.problems import find_broken_rules
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.bounded import carry_out
from sandbox.validation.live_answers import WHAT_TO_WRITE
from sandbox.validation.network_needs import find_unmet_needs
from sandbox.validation.web_oracle import has_web_oracle, run_web_oracle

_LOG_LINES, _LINE_CHARACTERS = 6, 200
"""What is shown of the tests' output."""
_SOLVE, _TERMINAL_BENCH_SOLVE = "/solution/solve.sh", "/oracle/solution.sh"
_OTHER_INTERPRETER = re.compile(r"#!(?!.*\b(?:ba)?sh\b)")
"""The first line of a solution that no shell runs."""


class ProofVerdict(StrEnum):
    PROVED = "proved"
    """The oracle passes every test and scores 1, doing nothing scores 0, and no foil passes or scores 1."""
    ORACLE_FAILS = "oracle_fails"
    NOOP_PASSES = "noop_passes"
    """Doing nothing gets a score above 0."""
    FOIL_PASSES = "foil_passes"
    """An attempt that its author declares wrong passes every test, or scores 1."""
    BROKEN = "broken"
    """Its sandbox cannot be created because of the task itself: its build, its setup or a service fails."""
    SKIPPED = "skipped"
    """It cannot be tried here; ``why`` gives the reason."""
    LOST = "lost"
    """The infrastructure failed: try again."""


@dataclass(frozen=True, slots=True)
class TaskProof:
    task: str
    verdict: ProofVerdict
    why: str = ""
    """Reason in one line, or empty; for a broken build, its last lines."""
    oracle: float | None = None
    """Score of the solution, by the task's own rule."""
    noop: float | None = None
    """Score of doing nothing."""
    foils: Mapping[str, float] = field(default_factory=dict[str, float])
    """Score of each foil; 1 for one that passes every test."""
    log: tuple[str, ...] = ()
    """Last lines of the output of the tests that the solution did not pass."""


@dataclass(frozen=True, slots=True)
class ProofEnvironment:
    """Functions with which tasks are tried."""

    acquire: Callable[[Task], AbstractAsyncContextManager[SandboxSession]]
    """Opens a fresh sandbox for the task, with its image, files, setup and services."""
    grade: Callable[[SandboxSession, Task], Awaitable[GradeResult]]
    """Grades the sandbox's content, at the task's level."""


AgentAction = Callable[[SandboxSession, Task], Awaitable[str]]
"""Acts in a step; returns what went wrong, or an empty text."""


class TaskAttempt(NamedTuple):
    """One attempt at a whole task."""

    grade: GradeResult
    problem: str
    """What first went wrong with what the agent did; empty if nothing did."""


def pool_proof_environment(pool: SandboxPool) -> ProofEnvironment:
    """Return an environment of a pool's sandboxes, graded at the task's level."""
    return ProofEnvironment(pool.acquire, grade_sandbox)


async def prove_tasks(
    tasks: Iterable[Task],
    environment: ProofEnvironment,
    at_once: int,
    on_proof: Callable[[TaskProof], None] = lambda _: None,
) -> list[TaskProof]:
    """Try every task, ``at_once`` of them at a time. Returns the proofs in the order of ``tasks``; ``on_proof`` gets
    each when it ends."""
    return await carry_out(tasks, lambda task: _prove(task, environment), at_once, on_proof)


async def _prove(task: Task, environment: ProofEnvironment) -> TaskProof:
    if task.answer:
        return _prove_answer(task)
    if not task.gradable or not task.has_oracle:
        return TaskProof(task.id, ProofVerdict.SKIPPED, "it has no oracle" if task.gradable else "it has no tests")
    try:
        noop, _ = await attempt_task(task, environment)
        oracle, problem = await attempt_task(task, environment, run_oracle)
        only_live = not oracle.all_passed and await _passes_live(task, environment)
        foils = {name: await _foiled(task, script, environment) for name, script in task.foils.items()}
    except UserError as error:
        return TaskProof(task.id, ProofVerdict.SKIPPED, str(error))
    except TaskFault as error:
        return TaskProof(task.id, ProofVerdict.BROKEN, str(error))
    except (InfraError, TimeoutError) as error:
        return TaskProof(task.id, ProofVerdict.LOST, f"{type(error).__name__}: {error}")
    except (SandboxDestroyed, OSError) as error:
        return TaskProof(task.id, ProofVerdict.ORACLE_FAILS, f"the solution destroyed its sandbox: {error}")
    verdict, why, log = ProofVerdict.PROVED, "", ""
    if not oracle.all_passed:
        log = oracle.log
        verdict, why = ProofVerdict.ORACLE_FAILS, _explain_failure(oracle, problem, task, only_live=only_live)
    elif noop.all_passed:
        verdict, why = ProofVerdict.NOOP_PASSES, "doing nothing passes every test"
    elif score := task_reward(task, noop):
        verdict, why = ProofVerdict.NOOP_PASSES, f"doing nothing scores {score:g}"
    elif passing := sorted(name for name, score in foils.items() if score >= 1):
        verdict, why = ProofVerdict.FOIL_PASSES, f"{', '.join(passing)} must not score 1"
    elif idle := sum(test.passed for test in noop.tests):
        why = f"{idle} of {len(noop.tests)} tests pass without any work"
    return TaskProof(task.id, verdict, why, task_reward(task, oracle), task_reward(task, noop), foils, _last_lines(log))


def _last_lines(log: str) -> tuple[str, ...]:
    lines = [line[:_LINE_CHARACTERS] for line in sanitize_text(log).split("\n") if line.strip()]
    return tuple(lines[-_LOG_LINES:])


async def attempt_task(task: Task, environment: ProofEnvironment, act: AgentAction | None = None) -> TaskAttempt:
    """Play the steps of a task in a sandbox of its own; without ``act`` nothing is done in any of them.

    Raises what its sandbox and its grading raise."""
    grades, problem = StepsGrade(task), ""
    async with environment.acquire(task) as session:
        while (step := grades.next_step) is not None:
            try:
                if step.steps:
                    await session.begin_step(step)
            except (TaskFault, OSError) as error:
                if not grades.played:
                    raise
                grades = grades.with_failed_start(str(error))
                break
            if act and (wrong := await act(session, step)):
                problem = problem or wrong
            grades = grades.with_step(await environment.grade(session, step))
    return TaskAttempt(grades.total, problem)


async def _passes_live(task: Task, environment: ProofEnvironment) -> bool:
    """Return whether the oracle passes if it is graded beside what it leaves running."""
    live = replace(task, grading=GradingLevel.LIVE)
    if task.grading is GradingLevel.LIVE or any(find_broken_rules(live)):
        return False
    try:
        return (await attempt_task(live, environment, run_oracle))[0].all_passed
    except (UserError, InfraError, SandboxDestroyed, TimeoutError, OSError):
        return False


async def _foiled(task: Task, script: str, environment: ProofEnvironment) -> float:
    """Return a foil's score, tried without the oracle's files. One that destroys its sandbox scores 0."""
    attempt = replace(task, solution=script, solution_files={})
    try:
        graded, _ = await attempt_task(attempt, environment, run_oracle)
    except SandboxDestroyed:
        return 0.0
    return 1.0 if graded.all_passed else task_reward(task, graded)


def _prove_answer(task: Task) -> TaskProof:
    """Prove a task that is graded by its last reply: a reply with the boxed answer must be right."""
    if is_right_answer(rf"\boxed{{{task.answer}}}", task.answer):
        return TaskProof(task.id, ProofVerdict.PROVED, oracle=1.0, noop=0.0)
    why = f"a reply with the boxed answer {task.answer[:80]!r} is not right: its braces do not match"
    return TaskProof(task.id, ProofVerdict.ORACLE_FAILS, why, 0.0, 0.0)


async def run_oracle(session: SandboxSession, task: Task) -> str:
    """Run the oracle like an agent's commands, or in a browser. Returns why it failed, or an empty text."""
    if has_web_oracle(task):
        return await run_web_oracle(session, task)
    files = {f"/solution/{path}": data for path, data in task.solution_files.items()}
    solve = _TERMINAL_BENCH_SOLVE if task.login_shell else _SOLVE
    await session.write_files({**files, solve: task.solution.encode()}, mode=0o755, as_root=True)
    shell = f"if [ -x /bin/bash ]; then bash {solve}; else sh {solve}; fi"
    if _OTHER_INTERPRETER.match(task.solution):
        shell = solve
    exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in task.solution_env.items())
    done = await session.run(f"({exports}{shell})", task.agent_timeout_s)
    if done.timed_out:
        return f"the solution exceeded its limit of {task.agent_timeout_s:g} s"
    return f"the solution exited with {done.exit_code}" if done.exit_code else ""


def _explain_failure(oracle: GradeResult, problem: str, task: Task, *, only_live: bool) -> str:
    failed = [test.name for test in oracle.tests if not test.passed]
    shown = f"{', '.join(failed[:3])} failed" if failed else "no test reported"
    if only_live:
        return f"{shown}, but not beside what the solution leaves running: {WHAT_TO_WRITE}"
    needs = [f"{need.phase} needs {need.what}" for need in find_unmet_needs(task)]
    return "; ".join(filter(None, (shown, problem, "out of time" if oracle.timed_out else "", *needs[:2])))
