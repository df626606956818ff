"""Writes a task as a Harbor directory.  Pure."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from typing import Any

import tomli_w

from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose_writer import (
    build_section,
    command_section,
    shared_folders,
    ulimits_section,
    write_compose,
)
from sandbox.tasks.field_encoding import from_metadata
from sandbox.tasks.file_tree import TreeFile, as_tree_files
from sandbox.tasks.formats.folders import write_environment
from sandbox.tasks.formats.harbor.artifacts import write_artifacts
from sandbox.tasks.formats.harbor.network import MODES
from sandbox.tasks.formats.harbor.schema import (
    AGENT_SERVICE,
    COMPOSE_FILE,
    FOILS_FOLDER,
    METADATA_PREFIX,
    TESTS_IMAGE,
)
from sandbox.tasks.formats.harbor.step_writer import step_tables, write_solution, write_steps, write_tests
from sandbox.tasks.formats.harbor.values import (
    write_collect,
    write_healthcheck,
    write_tests_environment,
    write_variables,
)
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode


def write_task(task: Task) -> dict[str, TreeFile]:
    """Write the parts of ``task`` that Harbor can express as the files of a directory."""
    environment, plan = write_environment(task, "main")
    if task.build and _needs_no_compose(task):
        environment, plan = as_tree_files(task.build.files, task.build.executable), BuildPlan()
    own = _compose_keys(task)
    if task.services or plan != BuildPlan() or own:
        section: dict[str, object] = {"build": build_section(plan), **own}
        if task.volumes:
            section["volumes"] = shared_folders(task)
        environment |= write_compose(AGENT_SERVICE, section, task.services, task.aliases)
    files = write_steps(task) if task.steps else write_solution(task) | write_tests(task.run_tests, task.tests)
    files |= as_tree_files({f"{name}.sh": script.encode() for name, script in task.foils.items()}, under=FOILS_FOLDER)
    if task.weights:
        files["weights.json"] = TreeFile(json.dumps(task.weights, indent=1).encode())
    if not task.steps:
        files["instruction.md"] = TreeFile(f"{task.instruction}\n".encode())
    files["task.toml"] = TreeFile(tomli_w.dumps(_tables(task)).encode())
    return files | {f"environment/{path}": file for path, file in environment.items()}


def _needs_no_compose(task: Task) -> bool:
    """Return whether ``environment/`` can be the build context itself."""
    build = task.build
    return (
        build is not None
        and not (task.services or build.args or build.target or _compose_keys(task))
        and build.dockerfile == "Dockerfile"
        and COMPOSE_FILE not in build.files
    )


def _compose_keys(task: Task) -> dict[str, object]:
    """Return the keys of the agent's service that ``task.toml`` cannot hold."""
    return command_section(task) | ulimits_section(task)


def _tables(task: Task) -> dict[str, Any]:
    own = {
        key: value for key, value in task.metadata.items() if not key.startswith(METADATA_PREFIX) and key != "category"
    }
    metadata = _toml_values(from_metadata(own) | ({"category": task.family} if task.family else {}))
    environment: dict[str, Any] = {
        "build_timeout_sec": task.build_timeout_s,
        "cpus": task.cpus,
        "memory": f"{task.memory_mb}M",
        "storage": f"{task.storage_mb}M",
        **_network(task.network.agent, task.network.allowed_hosts),
        **write_variables(task.env),
    }
    if task.healthcheck:
        environment["healthcheck"] = write_healthcheck(task.healthcheck)
    agent: dict[str, Any] = {"timeout_sec": task.agent_timeout_s, **write_variables(task.agent_env)}
    verifier: dict[str, Any] = {"timeout_sec": task.test_timeout_s}
    verifier |= _network(task.network.verify, task.network.allowed_hosts)
    verifier |= write_variables(task.test_env) | write_collect(task.collect)
    for table, user in ((agent, task.agent_user), (verifier, task.tests_user)):
        if user:
            table["user"] = user
    own = task.tests_environment
    if task.grading is GradingLevel.ARTIFACTS and (own is not None or not task.tests.keys() & TESTS_IMAGE):
        verifier["environment_mode"] = "separate"
    if own is not None:
        verifier |= write_tests_environment(own)
    tables: dict[str, Any] = {"version": "1.0"}
    if task.artifacts:
        tables["artifacts"] = write_artifacts(task.artifacts, task.artifact_excludes)
    tables |= {
        "metadata": metadata,
        "verifier": verifier,
        "agent": agent,
        "environment": environment,
        "solution": write_variables(task.solution_env),
    }
    if task.steps:
        tables["multi_step_reward_strategy"] = task.steps_reward.value
        tables["steps"] = step_tables(task)
    for path, value in _toml_values(from_metadata(task.metadata, METADATA_PREFIX)).items():
        table, dot, key = path.partition(".")
        if dot and table in {"verifier", "agent", "environment"}:
            tables[table].setdefault(key, value)
        else:
            tables.setdefault(path, value)
    return tables


def _network(mode: NetworkMode, hosts: Sequence[str]) -> dict[str, Any]:
    word = next(word for word, each in MODES.items() if each is mode)
    return {"network_mode": word.value} | ({"allowed_hosts": list(hosts)} if mode is NetworkMode.PROXY else {})


def _toml_values(values: dict[str, object]) -> dict[str, Any]:
    """Drop the values that TOML cannot hold; they go to ``longshore.yaml``."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        try:
            tomllib.loads(tomli_w.dumps({key: value}))
        except (TypeError, ValueError):
            continue
        kept[key] = value
    return kept
