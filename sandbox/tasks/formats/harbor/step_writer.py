"""Writes the tests and the solution of a Harbor task: its own, or those of its steps.  Pure.

What all steps have in common is written once, as that of the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.tasks.file_tree import TreeFile, as_tree_files
from sandbox.tasks.formats.harbor.artifacts import write_artifacts
from sandbox.tasks.formats.harbor.schema import STEPS_FOLDER
from sandbox.tasks.formats.harbor.values import (
    write_collect,
    write_healthcheck,
    write_tests_environment,
    write_variables,
)
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_grading import GradingLevel


def write_tests(run_tests: str, tests: Mapping[str, bytes], folder: str = "") -> dict[str, TreeFile]:
    """Write tests below ``folder``; an empty script is not written."""
    script = {"test.sh": TreeFile(run_tests.encode(), executable=True)} if run_tests else {}
    files = as_tree_files(tests) | script
    return {f"{folder}tests/{path}": file for path, file in files.items()}


def write_solution(of: Task | TaskStep, folder: str = "") -> dict[str, TreeFile]:
    """Write a solution below ``folder``."""
    script = {"solve.sh": TreeFile(of.solution.encode(), executable=True)} if of.solution else {}
    files = as_tree_files(of.solution_files) | script
    return {f"{folder}solution/{path}": file for path, file in files.items()}


def write_steps(task: Task) -> dict[str, TreeFile]:
    """Write the files of all steps."""
    scripts = {step.run_tests for step in task.steps}
    script = scripts.pop() if len(scripts) == 1 else ""
    tests = {
        path: data
        for path, data in task.steps[0].tests.items()
        if all(step.tests.get(path) == data for step in task.steps)
    }
    files = write_tests(script, tests)
    for step in task.steps:
        folder = f"{STEPS_FOLDER}/{step.name}/"
        own = {path: data for path, data in step.tests.items() if path not in tests}
        files |= write_tests(step.run_tests if step.run_tests != script else "", own, folder)
        files |= write_solution(step, folder)
        files |= as_tree_files(step.files, step.executable, under=f"{folder}workdir")
        files[f"{folder}instruction.md"] = TreeFile(f"{step.instruction}\n".encode())
    return files


def step_tables(task: Task) -> list[dict[str, Any]]:
    """Return the tables ``[[steps]]``."""
    has_image = any("Dockerfile" in step.tests for step in task.steps)  # as it would be read
    return [
        _table(
            each, separate=each.grading is GradingLevel.ARTIFACTS and not (has_image and of.tests_environment is None)
        )
        for each, of in zip(task.steps, task.in_steps, strict=True)
    ]


def _table(step: TaskStep, *, separate: bool) -> dict[str, Any]:
    table: dict[str, Any] = {
        "name": step.name,
        "agent": {"timeout_sec": step.agent_timeout_s} | _user(step.agent_user),
        "verifier": {
            "timeout_sec": step.test_timeout_s,
            "environment_mode": "separate" if separate else "shared",
            **_user(step.tests_user),
            **write_variables(step.test_env),
            **write_collect(step.collect),
        },
    }
    if separate and step.tests_environment is not None:
        table["verifier"] |= write_tests_environment(step.tests_environment)
    if step.min_rewards:
        table["min_reward"] = step.min_rewards
    if step.artifacts:
        table["artifacts"] = write_artifacts(step.artifacts, step.artifact_excludes)
    if step.healthcheck:
        table["healthcheck"] = write_healthcheck(step.healthcheck)
    return table


def _user(user: str) -> dict[str, Any]:
    return {"user": user} if user else {}
