"""Finds what a ``task.toml`` asks for and longshore cannot do, or does not need to.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.network import network_of_step
from sandbox.tasks.formats.harbor.schema import (
    AGENT_SERVICE,
    COMPOSE_FILE,
    CONVERSATION_FILE,
    STEPS_FOLDER,
    HarborArtifact,
    HarborEnvironment,
    HarborStep,
    HarborTable,
    HarborTask,
    HarborVerifier,
)
from sandbox.tasks.problems import TaskProblems

_STEP_FILES = {"instruction.md", "tests", "solution", "workdir"}


def check_support(described: HarborTask, tree: FileTree, problems: TaskProblems) -> None:
    """Record what cannot be followed as problems, and what cannot matter as remarks."""
    for what, why in dict.fromkeys(_unsupported(described, tree)):
        problems.add(f"task.toml: {what}", why)
    if described.environment.gpu_types and not described.environment.gpus:
        problems.remark("gpu_types is not used: it asks for no gpus")
    if described.multi_step_reward_strategy and not described.steps:
        problems.remark("multi_step_reward_strategy is not used: it has no steps")
    for unused in _unused_files(described, tree):
        problems.remark(unused)
    earlier = f"{STEPS_FOLDER}/{described.steps[0].name}/{CONVERSATION_FILE}" if described.steps else CONVERSATION_FILE
    if earlier in tree.files:
        problems.add(earlier, "an agent here begins without an earlier conversation")
    for table, unknown in _unknown_keys(described).items():
        problems.remark(f"{table or 'task.toml'} has keys that Harbor does not know either: {', '.join(unknown)}")


def _unsupported(described: HarborTask, tree: FileTree) -> Iterator[tuple[str, str]]:
    yield from _unsupported_environment(described.environment)
    separate = is_graded_separately(described.verifier)
    yield from _unsupported_verifier(described.verifier, tree, "verifier", "tests", separate=separate)
    yield from _unsupported_artifacts(described.artifacts)
    for step in described.steps:
        yield from _unsupported_step(described, step, tree)


def _unsupported_artifacts(artifacts: list[HarborArtifact]) -> Iterator[tuple[str, str]]:
    for each in artifacts:
        if not each.source.startswith("/"):
            yield f"artifacts: {each.source!r}", "it must be an absolute path"
        if each.service not in {None, AGENT_SERVICE}:
            yield f"artifacts: {each.source} of the service {each.service}", "only files of the agent's container count"


def _unsupported_step(described: HarborTask, step: HarborStep, tree: FileTree) -> Iterator[tuple[str, str]]:
    where, tests = f"steps.{step.name}", f"{STEPS_FOLDER}/{step.name}/tests"
    if step.agent.env:
        yield f"{where}.agent.env", "one container has the variables of all steps: set them in [agent.env]"
    separate = is_step_graded_separately(described, step)
    yield from _unsupported_verifier(step.verifier, tree, f"{where}.verifier", tests, separate=separate)
    if network_of_step(described, step) != network_of_step(described, HarborStep(name=step.name)):
        yield f"{where}: the network of agent or verifier", "one container has the network of all steps"
    yield from _unsupported_artifacts(step.artifacts)


def _unused_files(described: HarborTask, tree: FileTree) -> Iterator[str]:
    """Yield what a folder of steps holds that Harbor does not look at either."""
    named = {f"{STEPS_FOLDER}/{step.name}/" for step in described.steps}
    if described.steps and "instruction.md" in tree.files:
        yield "instruction.md is not used: each step has its own"
    for folder in sorted({"/".join(path.split("/")[:2]) for path in tree.files if path.startswith(f"{STEPS_FOLDER}/")}):
        if f"{folder}/" not in named:
            yield f"{folder} is not used: task.toml names no such step"
    for step in described.steps:
        inside = {path.split("/")[0] for path in tree.subtree(f"{STEPS_FOLDER}/{step.name}").files}
        if unused := sorted(inside - _STEP_FILES):
            yield f"{STEPS_FOLDER}/{step.name} has files that are not used: {', '.join(unused)}"


def _unsupported_environment(environment: HarborEnvironment, table: str = "environment") -> Iterator[tuple[str, str]]:
    if environment.os != "linux":
        yield f"{table}.os = {environment.os!r}", "sandboxes are Linux containers"
    if environment.gpus:
        yield f"{table}.gpus = {environment.gpus}", "sandboxes have no GPU"
    if environment.tpu:
        yield f"{table}.tpu", "sandboxes have no TPU"
    for unit in ("memory", "storage"):
        text, number = getattr(environment, unit), getattr(environment, f"{unit}_mb")
        if text is not None and f"{unit}_mb" in environment.model_fields_set and text != number:
            yield f"{table}.{unit} and {unit}_mb differ", "leave one of them out"
    if environment.mcp_servers:
        yield f"{table}.mcp_servers", "agents here have no MCP client"
    if environment.skills_dir:
        yield f"{table}.skills_dir", "agents here read no skills"


def _unsupported_verifier(
    verifier: HarborVerifier, tree: FileTree, table: str, tests: str, *, separate: bool
) -> Iterator[tuple[str, str]]:
    if verifier.environment_mode == "shared" and verifier.environment is not None:
        yield f"{table}.environment", 'it contradicts environment_mode = "shared"'
    if separate and f"{tests}/{COMPOSE_FILE}" in tree.files:
        yield f"{tests}/{COMPOSE_FILE}", "the tests' own container has no services"
    if separate and verifier.environment is not None:
        yield from _unsupported_environment(verifier.environment, f"{table}.environment")
    for each in verifier.collect:
        if each.service != AGENT_SERVICE:
            yield f"{table}.collect of the service {each.service}", "only files of the agent's container count"


def is_graded_separately(verifier: HarborVerifier) -> bool:
    """Return whether the tests run in a container of their own."""
    return verifier.environment_mode == "separate" or (
        verifier.environment_mode is None and verifier.environment is not None
    )


def is_step_graded_separately(described: HarborTask, step: HarborStep) -> bool:
    """Return whether a step's tests run in a container of their own: as the step says, else as the task does."""
    says = step.verifier.environment_mode is not None or step.verifier.environment is not None
    return is_graded_separately(step.verifier if says else described.verifier)


def _unknown_keys(described: HarborTask) -> dict[str, list[str]]:
    tables: dict[str, HarborTable] = {
        "": described,
        "[environment]": described.environment,
        "[agent]": described.agent,
        "[verifier]": described.verifier,
        "[solution]": described.solution,
    }
    if described.environment.healthcheck:
        tables["[environment.healthcheck]"] = described.environment.healthcheck
    artifacts, verifiers = list(described.artifacts), {"verifier": described.verifier}
    for step in described.steps:
        where = f"steps.{step.name}"
        tables |= {where: step, f"{where}.agent": step.agent, f"{where}.verifier": step.verifier}
        if step.healthcheck:
            tables[f"{where}.healthcheck"] = step.healthcheck
        artifacts += step.artifacts
        verifiers[f"{where}.verifier"] = step.verifier
    tables |= {f"the artifact {each.source}": each for each in artifacts}
    tables |= {f"{name}.environment": each.environment for name, each in verifiers.items() if each.environment}
    tables |= {
        f"{name}.collect.{number}": each
        for name, verifier in verifiers.items()
        for number, each in enumerate(verifier.collect)
    }
    return {name: sorted(table.model_extra) for name, table in tables.items() if table.model_extra}
