"""Reads the container of tests that have an image of their own.  Pure."""

from __future__ import annotations

from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.schema import HarborVerifier
from sandbox.tasks.formats.harbor.support import is_graded_separately
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import TestsEnvironment

_LIMITS = ("cpus", "memory", "memory_mb", "storage", "storage_mb", "build_timeout_sec", "healthcheck")


def read_tests_environment(verifier: HarborVerifier, tree: FileTree, problems: TaskProblems) -> TestsEnvironment | None:
    """Return the tests' own image: that of ``[verifier.environment]``, or the one that ``tests/Dockerfile`` builds.

    None if the tests share a container with the agent, or are run in a clean one of its image.
    """
    if not is_graded_separately(verifier):
        return None
    given, inside = verifier.environment, tree.subtree("tests")
    env, workdir = (given.env, given.workdir or "") if given is not None else ({}, "")
    if unused := [key for key in _LIMITS if given is not None and key in given.model_fields_set]:
        problems.remark(f"verifier.environment: {', '.join(unused)} is not used: the tests have the agent's limits")
    if given is not None and given.docker_image:
        return TestsEnvironment(given.docker_image, env=env, workdir=workdir)
    if "Dockerfile" in inside.files:
        return TestsEnvironment(build=read_build_context(inside, BuildPlan(), (), problems), env=env, workdir=workdir)
    return None
