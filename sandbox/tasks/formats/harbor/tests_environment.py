"""Reads the containers of tests that have one of their own.  Pure."""

from __future__ import annotations

from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.schema import STEPS_FOLDER, HarborStep, HarborTask
from sandbox.tasks.formats.harbor.support import is_graded_separately, is_step_graded_separately
from sandbox.tasks.formats.harbor.values import resolve_variables
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import TestsEnvironment

_UNUSED = {
    "build_timeout_sec": "the tests' image has the run's limit",
    "healthcheck": "only the agent's container is checked",
}


def read_tests_environment(described: HarborTask, tree: FileTree, problems: TaskProblems) -> TestsEnvironment | None:
    """Return the tests' own container: of the image of ``[verifier.environment]``, of the one that ``tests/Dockerfile``
    builds, or else of the agent's.

    None if the tests share a container with the agent, or are run in one like it.
    """
    if (
        any(is_step_graded_separately(described, step) for step in described.steps)
        if described.steps
        else is_graded_separately(described.verifier)
    ):
        return _read(described, None, tree, problems)
    return None


def read_step_tests_environment(
    described: HarborTask, step: HarborStep, tree: FileTree, problems: TaskProblems
) -> TestsEnvironment | None:
    """Return the container of a step's tests, if the step says more of it than the task: its tables and its
    ``tests/Dockerfile`` come first."""
    says = step.verifier.environment is not None or has_own_image(step, tree)
    return _read(described, step, tree, problems) if says and is_step_graded_separately(described, step) else None


def has_own_image(step: HarborStep, tree: FileTree) -> bool:
    """Return whether a step names or builds an image for its tests."""
    named = step.verifier.environment is not None and bool(step.verifier.environment.docker_image)
    return named or f"{STEPS_FOLDER}/{step.name}/tests/Dockerfile" in tree.files


def _read(
    described: HarborTask, step: HarborStep | None, tree: FileTree, problems: TaskProblems
) -> TestsEnvironment | None:
    table, given, image, build = "verifier.environment", described.verifier.environment, "", None
    candidates = [(given, "tests")]
    if step is not None:
        candidates.insert(0, (step.verifier.environment, f"{STEPS_FOLDER}/{step.name}/tests"))
        if step.verifier.environment is not None:
            table, given = f"steps.{step.name}.{table}", step.verifier.environment
    for environment, folder in candidates:
        inside, image = tree.subtree(folder), environment.docker_image if environment else ""
        if not image and "Dockerfile" in inside.files:
            build = read_build_context(inside, BuildPlan(), (), problems)
        if image or build:
            break
    if given is None:
        if not image and build is None:
            return None
        table, given = "environment", described.environment
    else:
        for key in sorted(_UNUSED.keys() & given.model_fields_set):
            problems.remark(f"{table}: {key} is not used: {_UNUSED[key]}")
    own = given.model_dump(include=given.model_fields_set & {"memory", "memory_mb", "cpus", "storage", "storage_mb"})
    return TestsEnvironment(
        image,
        build,
        resolve_variables(f"{table}.env", given.env, problems),
        given.workdir or "",
        memory_mb=own.get("memory") or own.get("memory_mb"),
        cpus=own.get("cpus"),
        storage_mb=own.get("storage") or own.get("storage_mb"),
    )
