"""Reads a Harbor directory into a task.  Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, cast

from pydantic import Field, TypeAdapter, ValidationError

from sandbox.default_limits import SHM_MB
from sandbox.tasks.container_files import compose
from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose import HARNESS_FOLDER
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.field_encoding import to_metadata
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.folders import read_environment
from sandbox.tasks.formats.harbor.network import read_network
from sandbox.tasks.formats.harbor.schema import (
    AGENT_SERVICE,
    COMPOSE_FILE,
    FOILS_FOLDER,
    METADATA_PREFIX,
    REPORTS,
    TEMPLATE,
    HarborHealthcheck,
    HarborTable,
    HarborTask,
)
from sandbox.tasks.formats.harbor.support import check_support, is_graded_separately
from sandbox.tasks.formats.harbor.tests_environment import read_tests_environment
from sandbox.tasks.live_evidence import suggest_grading
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import GradingLevel, Task, TaskHealthcheck

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

_AGENT_S = 600.0
"""Time limit of the agent in seconds if the task has none."""
_KEPT = ("task", "source", "multi_step_reward_strategy")
"""Keys about a task that do not change how it runs."""


def read_task(name: str, tree: FileTree, problems: TaskProblems) -> Task:
    """Read a Harbor directory; problems are added to ``problems``."""
    described = _toml(tree, problems)
    check_support(described, tree, problems)
    environment, verifier = described.environment, described.verifier
    inside = tree.subtree("environment")
    memory_mb = environment.memory or environment.memory_mb
    variables = _VARIABLES | {"CPUS": f"{environment.cpus:g}", "MEMORY": f"{memory_mb}M"}
    composed = (
        compose.read_compose_file(inside, (COMPOSE_FILE,), AGENT_SERVICE, variables, problems) or compose.ComposeFacts()
    )
    plan = composed.build
    if plan is None and not environment.docker_image and not composed.image:
        plan = BuildPlan() if "Dockerfile" in inside.files else None
    start = read_environment(inside, plan, environment.docker_image or composed.image, (COMPOSE_FILE,), problems)
    tests = problems.read_regular_files(tree, "tests")
    tests.pop("test.sh", None)
    run_tests = problems.read_text(tree, "tests/test.sh", "without it nothing can be graded")
    solution_files = problems.read_regular_files(tree, "solution")
    solution_files.pop("solve.sh", None)
    weights = _weights(tree, problems)
    env, agent_env, test_env, solution_env = (
        _resolve(where, given, problems)
        for where, given in (
            ("environment.env", environment.env),
            ("agent.env", described.agent.env),
            ("verifier.env", verifier.env),
            ("solution.env", described.solution.env),
        )
    )
    network, health = read_network(described, problems), environment.healthcheck
    own = read_tests_environment(verifier, tree, problems)
    if own is not None:
        own = replace(own, env=_resolve("verifier.environment.env", own.env, problems))
    instruction = problems.read_text(tree, "instruction.md", "the agent needs it").strip() or "unreadable"
    level = suggest_grading(run_tests, tests, instruction)
    return Task(
        id=name,
        instruction=instruction,
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
        grading=GradingLevel.ARTIFACTS if is_graded_separately(verifier) else level,
        artifacts=tuple(each.source for each in described.artifacts),
        tests_environment=own,
        env=env | composed.env,
        agent_env=agent_env,
        test_env=test_env,
        solution_env=solution_env,
        agent_user=described.agent.user or composed.user,
        tests_user=verifier.user or composed.user,
        healthcheck=health and _healthcheck(health),
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
    )


def _toml(tree: FileTree, problems: TaskProblems) -> HarborTask:
    try:
        value = tomllib.loads(problems.read_text(tree, "task.toml"))
    except (ValueError, RecursionError) as error:
        problems.add("task.toml is not readable TOML", str(error))
        value = {}
    return problems.validate("task.toml", value, HarborTask) or HarborTask()


def _healthcheck(given: HarborHealthcheck) -> TaskHealthcheck:
    return TaskHealthcheck(
        given.command,
        given.interval_sec,
        given.timeout_sec,
        given.start_period_sec,
        given.start_interval_sec,
        given.retries,
    )


def _resolve(where: str, given: Mapping[str, str], problems: TaskProblems) -> dict[str, str]:
    """Return the variables with the defaults of their templates; one that only the host could give is a problem."""
    found: dict[str, str] = {}
    for name, value in given.items():
        template = TEMPLATE.fullmatch(value)
        if template and template["default"] is None:
            problems.add(
                f"task.toml: {where}.{name} = {value!r} has no default",
                f"no value is taken from the host's environment: write ${{{template['name']}:-VALUE}}",
            )
        found[name] = template["default"] or "" if template else value
    return found


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
