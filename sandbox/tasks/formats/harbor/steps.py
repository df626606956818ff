"""Reads the steps of a Harbor task: ``[[steps]]`` and ``steps/NAME``.  Pure.

A step has its own ``instruction.md``; its ``tests`` are added to those of the task, and its ``solution`` replaces the
task's.  What ``workdir`` holds is put into the agent's working directory before the step, where its ``setup.sh`` then
runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.artifacts import read_artifacts
from sandbox.tasks.formats.harbor.given_files import read_instruction
from sandbox.tasks.formats.harbor.schema import STEPS_FOLDER, HarborStep, HarborTask
from sandbox.tasks.formats.harbor.support import is_step_graded_separately
from sandbox.tasks.formats.harbor.tests_environment import has_own_image, read_step_tests_environment
from sandbox.tasks.formats.harbor.values import read_collect, read_healthcheck, resolve_variables
from sandbox.tasks.live_evidence import suggest_grading
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_grading import GradingLevel, StepsReward


def with_steps(task: Task, described: HarborTask, tree: FileTree, problems: TaskProblems) -> Task:
    """Return a task of the steps that are described; ``task`` holds what the folder has for all of them."""
    steps = tuple(_read_step(task, described, each, tree, problems) for each in described.steps)
    return replace(
        task,
        instruction="\n\n".join(step.instruction for step in steps),
        steps=steps,
        steps_reward=described.multi_step_reward_strategy or StepsReward.MEAN,
        tests={},
        run_tests="",
        expected_tests=(),
        solution="",
        solution_files={},
        artifacts=(),
        artifact_excludes={},
        collect=(),
        grading=GradingLevel.SAME,
        test_env={},
    )


def _read_step(
    task: Task, described: HarborTask, given: HarborStep, tree: FileTree, problems: TaskProblems
) -> TaskStep:
    where, folder = f"steps.{given.name}", f"{STEPS_FOLDER}/{given.name}"
    instruction = read_instruction(tree, f"{folder}/instruction.md", problems, "the agent needs it") or "unreadable"
    separate = is_step_graded_separately(described, given)
    environment, has_image = read_step_tests_environment(described, given, tree, problems), has_own_image(given, tree)
    bundled = separate and not has_image and (environment.has_image if environment else task.has_tests_image)
    of_task = replace(task, tests={}) if separate and has_image else task
    run_tests, tests = _read_tests(of_task, folder, tree, problems, bundled=bundled)
    test_env = task.test_env | resolve_variables(f"{where}.verifier.env", given.verifier.env, problems)
    if separate:
        level = GradingLevel.ARTIFACTS
    elif given is described.steps[-1]:
        level = suggest_grading(run_tests, tests, instruction, task.env | test_env)
    else:
        level = GradingLevel.LIVE
    artifacts = read_artifacts([*described.artifacts, *given.artifacts], separate=separate)
    solution, solution_files = _read_solution(task, folder, tree, problems)
    return TaskStep(
        name=given.name,
        instruction=instruction,
        files=problems.read_regular_files(tree, f"{folder}/workdir"),
        executable=tree.subtree(f"{folder}/workdir").executable_paths(),
        healthcheck=given.healthcheck and read_healthcheck(given.healthcheck),
        tests=tests,
        run_tests=run_tests,
        expected_tests=find_expected_tests(run_tests, tests),
        solution=solution,
        solution_files=solution_files,
        artifacts=artifacts.paths,
        artifact_excludes=artifacts.excludes,
        collect=task.collect + read_collect(given.verifier.collect),
        grading=level,
        tests_environment=environment,
        test_env=test_env,
        agent_user=given.agent.user or task.agent_user,
        tests_user=given.verifier.user or task.tests_user,
        agent_timeout_s=given.agent.timeout_sec or task.agent_timeout_s,
        test_timeout_s=given.verifier.timeout_sec,
        min_rewards=dict(_min_rewards(given)),
    )


def _read_tests(
    task: Task, folder: str, tree: FileTree, problems: TaskProblems, *, bundled: bool
) -> tuple[str, dict[str, bytes]]:
    """Return the script and the other files of a step's tests; those of the task alone if an image has them."""
    script = f"{folder}/tests/test.sh"
    own = {} if bundled else problems.read_regular_files(tree, f"{folder}/tests")
    has_script = own.pop("test.sh", None) is not None
    if not has_script and not task.run_tests:
        problems.add(f"{script} is missing", "without it, or tests/test.sh, nothing can be graded")
    run_tests = problems.read_text(tree, script) if has_script else task.run_tests
    return run_tests, task.tests | own


def _read_solution(task: Task, folder: str, tree: FileTree, problems: TaskProblems) -> tuple[str, dict[str, bytes]]:
    own = problems.read_regular_files(tree, f"{folder}/solution")
    if not own:
        return task.solution, task.solution_files
    own.pop("solve.sh", None)
    return problems.read_text(tree, f"{folder}/solution/solve.sh"), own


def _min_rewards(given: HarborStep) -> Iterator[tuple[str, float]]:
    match given.min_reward:
        case None:
            return
        case dict() as named:
            yield from named.items()
        case value:
            yield "reward", value
