"""Reads a Harbor directory into a task.  Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, cast

from pydantic import Field, TypeAdapter, ValidationError

from sandbox.default_limits import SHM_MB
from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose import read_compose_file
from sandbox.tasks.container_files.compose_services import ComposeFacts
from sandbox.tasks.container_files.compose_volumes import HARNESS_FOLDER
from sandbox.tasks.container_files.dockerfile import copied_sources, copies_path, parse_instructions
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.field_encoding import to_metadata
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.folders import TaskEnvironment, read_environment
from sandbox.tasks.formats.harbor.artifacts import read_artifacts
from sandbox.tasks.formats.harbor.given_files import build_with_loose_files, read_instruction
from sandbox.tasks.formats.harbor.ignored_files import without_ignored_files
from sandbox.tasks.formats.harbor.network import read_network
from sandbox.tasks.formats.harbor.schema import (
    AGENT_SERVICE,
    COMPOSE_FILE,
    FOILS_FOLDER,
    METADATA_PREFIX,
    REPORTS,
    HarborEnvironment,
    HarborTable,
    HarborTask,
)
from sandbox.tasks.formats.harbor.steps import with_steps
from sandbox.tasks.formats.harbor.support import check_support, is_graded_separately
from sandbox.tasks.formats.harbor.tests_environment import read_tests_environment
from sandbox.tasks.formats.harbor.values import read_collect, read_healthcheck, resolve_variables
from sandbox.tasks.live_evidence import suggest_grading
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel

_VARIABLES = {
    "MAIN_IMAGE_NAME": "",
    "PREBUILT_IMAGE_NAME": "",
    "CONTEXT_DIR": ".",
    "TEST_DIR": "/tests",
    "HOST_VERIFIER_LOGS_PATH": f"{HARNESS_FOLDER}verifier",
    "HOST_AGENT_LOGS_PATH": f"{HARNESS_FOLDER}agent",
    "HOST_ARTIFACTS_PATH": f"{HARNESS_FOLDER}artifacts",
    "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
    "ENV_AGENT_LOGS_PATH": "/logs/agent",
    "ENV_ARTIFACTS_PATH": "/logs/artifacts",
}

_LONG_KEY = re.compile(r"(?<![\w.-])(?:[\w-]++[ \t]*+\.[ \t]*+){100}")
"""A key that tomllib would take long to read: the time grows by the square of its parts."""
_AGENT_S = 600.0
"""Time limit of the agent in seconds if the task has none."""
_KEPT = ("task", "source")
"""Keys about a task that do not change how it runs."""


def read_task(name: str, tree: FileTree, problems: TaskProblems) -> Task:
    """Read a Harbor directory; problems are added to ``problems``."""
    described, tree = _toml(tree, problems), without_ignored_files(tree, problems)
    check_support(described, tree, problems)
    environment, verifier, steps = described.environment, described.verifier, described.steps
    memory_mb = environment.memory or environment.memory_mb
    env = resolve_variables("environment.env", environment.env, problems)
    composed, start = _read_environment(environment, memory_mb, env, tree, problems)
    tests = _files_beside("test.sh", tree, "tests", problems)
    run_tests = problems.read_text(tree, "tests/test.sh", "" if steps else "without it nothing can be graded")
    solution_files = _files_beside("solve.sh", tree, "solution", problems)
    weights = _weights(tree, problems)
    agent_env = resolve_variables("agent.env", described.agent.env, problems)
    test_env = resolve_variables("verifier.env", verifier.env, problems)
    solution_env = resolve_variables("solution.env", described.solution.env, problems)
    network, health = read_network(described, problems), environment.healthcheck
    if health and composed.healthcheck:
        problems.add(f"{COMPOSE_FILE}: a healthcheck beside [environment.healthcheck]", "one check decides: join them")
    own = read_tests_environment(described, tree, problems)
    instruction = read_instruction(tree, "instruction.md", problems, "" if steps else "the agent needs it")
    level = suggest_grading(run_tests, tests, instruction, composed.env | env | test_env)
    separate = is_graded_separately(verifier)
    artifacts = read_artifacts(described.artifacts, separate=separate)
    task = Task(
        id=name,
        instruction=instruction or "unreadable",
        family=str(described.metadata.get("category", "")),
        image=start.image,
        setup=start.setup,
        files=start.files,
        tests=tests,
        run_tests=run_tests,
        expected_tests=tuple(weights) or find_expected_tests(run_tests, tests),
        weights=weights,
        reports=REPORTS,
        solution=problems.read_text(tree, "solution/solve.sh"),
        solution_files=solution_files,
        foils=_foils(tree, problems),
        build=start.build,
        services=composed.services,
        network=composed.network(network),
        grading=GradingLevel.ARTIFACTS if separate else level,
        artifacts=artifacts.paths,
        artifact_excludes=artifacts.excludes,
        collect=read_collect(verifier.collect),
        tests_environment=own,
        env=composed.env | env,
        agent_env=agent_env,
        test_env=test_env,
        solution_env=solution_env,
        agent_user=described.agent.user or composed.user,
        tests_user=verifier.user or composed.user,
        container_user=composed.user,
        healthcheck=(health and read_healthcheck(health)) or composed.healthcheck,
        metadata=_metadata(described),
        workdir=environment.workdir or composed.workdir or start.workdir,
        agent_timeout_s=described.agent.timeout_sec or _AGENT_S,
        test_timeout_s=verifier.timeout_sec,
        build_timeout_s=environment.build_timeout_sec,
        memory_mb=composed.memory_mb or memory_mb,
        pids=composed.pids or 256,
        cpus=composed.cpus or environment.cpus,
        storage_mb=environment.storage or environment.storage_mb,
        shm_mb=composed.shm_mb or SHM_MB,
        tmpfs=composed.tmpfs,
        ulimits=composed.ulimits,
        read_only=composed.read_only,
        volumes=composed.volumes,
        entrypoint=composed.entrypoint,
        command=composed.command,
        hostname=composed.hostname,
        aliases=composed.aliases,
    )
    return with_steps(task, described, tree, problems) if steps else task


def _read_environment(
    environment: HarborEnvironment, memory_mb: int, env: Mapping[str, str], tree: FileTree, problems: TaskProblems
) -> tuple[ComposeFacts, TaskEnvironment]:
    """Return what the compose file says, in which ``env`` are variables, and from what the agent starts."""
    if loose := build_with_loose_files(environment, tree, problems):
        return ComposeFacts(), TaskEnvironment(build=loose, workdir=environment.workdir or "")
    folder = tree.subtree("environment")
    variables = {**env, **_VARIABLES} | {"CPUS": f"{environment.cpus:g}", "MEMORY": f"{memory_mb}M"}
    composed = read_compose_file(folder, (COMPOSE_FILE,), AGENT_SERVICE, variables, problems, is_merged=True)
    image, plan = environment.docker_image or composed.image, None if environment.docker_image else composed.build
    if plan is None and not environment.docker_image and "Dockerfile" in folder.files:
        image, plan = "", BuildPlan()
    return composed, read_environment(folder, plan, image, _unseen(folder, plan), problems, folders=composed.folders)


def _unseen(folder: FileTree, plan: BuildPlan | None) -> tuple[str, ...]:
    """Return the compose file, unless the Dockerfile copies it: it would make equal contexts differ."""
    file = plan.context_in(folder).files.get(plan.dockerfile) if plan else None
    sources = copied_sources(parse_instructions(file.data.decode(errors="replace"))) if file else ()
    return () if any(each == "." or copies_path(each, COMPOSE_FILE) for each in sources) else (COMPOSE_FILE,)


def _files_beside(script: str, tree: FileTree, folder: str, problems: TaskProblems) -> dict[str, bytes]:
    files = problems.read_regular_files(tree, folder)
    files.pop(script, None)
    return files


def _toml(tree: FileTree, problems: TaskProblems) -> HarborTask:
    text = problems.read_text(tree, "task.toml")
    if _LONG_KEY.search(text):
        problems.add("task.toml has a key of more than 100 parts", "Harbor has none that is longer than four")
        text = ""
    try:
        value = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        problems.add("task.toml is not readable TOML", str(error))
        value = {}
    return problems.validate("task.toml", value, HarborTask) or HarborTask()


def _metadata(described: HarborTask) -> dict[str, str]:
    """Return ``[metadata]`` under its own keys, and every other unused key under ``harbor.``."""
    others: dict[str, object] = dict(described.model_extra or {})
    others |= {key: value for key in _KEPT if (value := getattr(described, key))}
    for name in ("verifier", "agent", "environment", "solution"):
        table = cast("HarborTable", getattr(described, name))
        others |= {f"{name}.{key}": value for key, value in (table.model_extra or {}).items()}
    own = {
        key: value
        for key, value in described.metadata.items()
        if key != "category" and not key.startswith(METADATA_PREFIX)
    }
    return to_metadata(own) | to_metadata(others, METADATA_PREFIX)


def _foils(tree: FileTree, problems: TaskProblems) -> dict[str, str]:
    inside = tree.subtree(FOILS_FOLDER)
    for path in sorted(inside.files.keys() | inside.irregular):
        if "/" in path or not path.endswith(".sh"):
            problems.add(f"{FOILS_FOLDER}/{path} is not a shell script", "each file there is an attempt, named NAME.sh")
    return {
        path.removesuffix(".sh"): problems.read_text(tree, f"{FOILS_FOLDER}/{path}") for path in sorted(inside.files)
    }


_WEIGHTS = TypeAdapter(dict[str, Annotated[float, Field(ge=0)]])


def _weights(tree: FileTree, problems: TaskProblems) -> dict[str, float]:
    text = problems.read_text(tree, "weights.json")
    if not text:
        return {}
    try:
        return _WEIGHTS.validate_json(text)
    except ValidationError as error:
        problems.add_validation_error("weights.json", error)
        return {}
