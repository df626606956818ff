"""Finds what a ``task.toml`` asks for and longshore cannot do, or does not need to.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.schema import (
    AGENT_SERVICE,
    HarborEnvironment,
    HarborTable,
    HarborTask,
    HarborVerifier,
)
from sandbox.tasks.problems import TaskProblems


def check_support(described: HarborTask, tree: FileTree, problems: TaskProblems) -> None:
    """Record what cannot be followed as problems, and what cannot matter as remarks."""
    for what, why in _unsupported(described, tree):
        problems.add(f"task.toml: {what}", why)
    if described.environment.gpu_types and not described.environment.gpus:
        problems.remark("gpu_types is not used: it asks for no gpus")
    if described.multi_step_reward_strategy and not described.steps:
        problems.remark("multi_step_reward_strategy is not used: it has no steps")
    for table, unknown in _unknown_keys(described).items():
        problems.remark(f"{table or 'task.toml'} has keys that Harbor does not know either: {', '.join(unknown)}")


def _unsupported(described: HarborTask, tree: FileTree) -> Iterator[tuple[str, str]]:
    yield from _unsupported_environment(described.environment)
    if described.steps:
        yield "steps", "tasks of several steps are not run"
    yield from _unsupported_verifier(described.verifier, tree)
    separate = is_graded_separately(described.verifier)
    for each in described.artifacts:
        if not each.source.startswith("/"):
            yield f"artifacts: {each.source!r}", "it must be an absolute path"
        if each.service not in {None, AGENT_SERVICE}:
            yield f"artifacts: {each.source} of the service {each.service}", "only files of the agent's container count"
        if each.exclude and separate:
            yield f"artifacts: {each.source} excludes files", "the tests get all of it"


def _unsupported_environment(environment: HarborEnvironment, table: str = "environment") -> Iterator[tuple[str, str]]:
    if environment.os != "linux":
        yield f"{table}.os = {environment.os!r}", "sandboxes are Linux containers"
    if environment.gpus:
        yield f"{table}.gpus = {environment.gpus}", "sandboxes have no GPU"
    if environment.tpu:
        yield f"{table}.tpu", "sandboxes have no TPU"
    if environment.mcp_servers:
        yield f"{table}.mcp_servers", "agents here have no MCP client"
    if environment.skills_dir:
        yield f"{table}.skills_dir", "agents here read no skills"


def _unsupported_verifier(verifier: HarborVerifier, tree: FileTree) -> Iterator[tuple[str, str]]:
    if verifier.environment_mode == "shared" and verifier.environment is not None:
        yield "verifier.environment", 'it contradicts environment_mode = "shared"'
    if verifier.collect:
        yield "verifier.collect", "no command runs between the agent and the tests"
    if not is_graded_separately(verifier):
        return
    if "tests/docker-compose.yaml" in tree.files:
        yield "tests/docker-compose.yaml", "the tests' own container has no services"
    if verifier.environment is not None:
        yield from _unsupported_environment(verifier.environment, "verifier.environment")
        if not verifier.environment.docker_image and "tests/Dockerfile" not in tree.files:
            yield "verifier.environment without an image", "the tests get a clean container of the agent's image"


def is_graded_separately(verifier: HarborVerifier) -> bool:
    """Return whether the tests run in a container of their own."""
    return verifier.environment_mode == "separate" or (
        verifier.environment_mode is None and verifier.environment is not None
    )


def _unknown_keys(described: HarborTask) -> dict[str, list[str]]:
    tables: dict[str, HarborTable] = {
        "": described,
        "[environment]": described.environment,
        "[agent]": described.agent,
        "[verifier]": described.verifier,
        "[solution]": described.solution,
    }
    if described.verifier.environment:
        tables["[verifier.environment]"] = described.verifier.environment
    if described.environment.healthcheck:
        tables["[environment.healthcheck]"] = described.environment.healthcheck
    tables |= {f"the artifact {each.source}": each for each in described.artifacts}
    return {name: sorted(table.model_extra) for name, table in tables.items() if table.model_extra}
