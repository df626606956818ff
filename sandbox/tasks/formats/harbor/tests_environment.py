"""Reads the container of tests that have an image of their own.  Pure."""

from __future__ import annotations

from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.schema import HarborEnvironment, HarborTask
from sandbox.tasks.formats.harbor.support import is_graded_separately, is_step_graded_separately
from sandbox.tasks.formats.harbor.values import resolve_variables
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import TestsEnvironment

_UNUSED = ("build_timeout_sec", "healthcheck")


def read_tests_environment(described: HarborTask, tree: FileTree, problems: TaskProblems) -> TestsEnvironment | None:
    """Return the tests' own container: of the image of ``[verifier.environment]``, of the one that ``tests/Dockerfile``
    builds, or else of the agent's.

    None if the tests share a container with the agent, or are run in one like it.
    """
    if not (
        any(is_step_graded_separately(described, step) for step in described.steps)
        if described.steps
        else is_graded_separately(described.verifier)
    ):
        return None
    given, inside = described.verifier.environment or HarborEnvironment(), tree.subtree("tests")
    if unused := [key for key in _UNUSED if key in given.model_fields_set]:
        problems.remark(f"verifier.environment: {', '.join(unused)} is not used: the tests' image has the run's limit")
    if described.verifier.environment is None and "Dockerfile" not in inside.files:
        return None
    is_built = not given.docker_image and "Dockerfile" in inside.files
    build = read_build_context(inside, BuildPlan(), (), problems) if is_built else None
    own = given.model_dump(include=given.model_fields_set & {"memory", "memory_mb", "cpus", "storage", "storage_mb"})
    return TestsEnvironment(
        given.docker_image,
        build,
        resolve_variables("verifier.environment.env", given.env, problems),
        given.workdir or "",
        memory_mb=own.get("memory") or own.get("memory_mb"),
        cpus=own.get("cpus"),
        storage_mb=own.get("storage") or own.get("storage_mb"),
    )
