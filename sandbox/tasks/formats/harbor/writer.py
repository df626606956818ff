"""Writes a task as a Harbor directory.  Pure."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import tomli_w

from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose_writer import build_section, write_compose
from sandbox.tasks.field_encoding import from_metadata
from sandbox.tasks.file_tree import TreeFile, as_tree_files
from sandbox.tasks.formats.folders import write_environment
from sandbox.tasks.formats.harbor.schema import AGENT_SERVICE, FOILS_FOLDER, METADATA_PREFIX
from sandbox.tasks.task import GradingLevel, NetworkMode, Task


def write_task(task: Task) -> dict[str, TreeFile]:
    """Write the parts of ``task`` that Harbor can express as the files of a directory."""
    environment, plan = write_environment(task, "main")
    if task.build and _needs_no_compose(task):
        environment, plan = as_tree_files(task.build.files, task.build.executable), BuildPlan()
    if task.services or plan != BuildPlan():
        environment |= write_compose(AGENT_SERVICE, {"build": build_section(plan)}, task.services)
    files = as_tree_files(task.tests, under="tests") | as_tree_files(task.solution_files, under="solution")
    files["tests/test.sh"] = TreeFile(task.run_tests.encode(), executable=True)
    if task.solution:
        files["solution/solve.sh"] = TreeFile(task.solution.encode(), executable=True)
    files |= as_tree_files({f"{name}.sh": script.encode() for name, script in task.foils.items()}, under=FOILS_FOLDER)
    if task.weights:
        files["weights.json"] = TreeFile(json.dumps(task.weights, indent=1).encode())
    files["instruction.md"] = TreeFile(f"{task.instruction}\n".encode())
    files["task.toml"] = TreeFile(tomli_w.dumps(_tables(task)).encode())
    return files | {f"environment/{path}": file for path, file in environment.items()}


def _needs_no_compose(task: Task) -> bool:
    """Return whether ``environment/`` can be the build context itself."""
    build = task.build
    return (
        build is not None
        and not (task.files or task.setup or task.services or build.args or build.target)
        and build.dockerfile == "Dockerfile"
        and not any(path.startswith("docker-compose.y") for path in build.files)
    )


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
        "allow_internet": task.network.agent is not NetworkMode.NONE,
    }
    verifier: dict[str, Any] = {"timeout_sec": task.test_timeout_s}
    if task.grading is GradingLevel.ARTIFACTS:
        verifier["environment_mode"] = "separate"
    tables: dict[str, Any] = {"version": "1.0"}
    if task.artifacts:
        tables["artifacts"] = list(task.artifacts)
    tables |= {
        "metadata": metadata,
        "verifier": verifier,
        "agent": {"timeout_sec": task.agent_timeout_s},
        "environment": environment | ({"env": dict(task.env)} if task.env else {}),
    }
    for path, value in _toml_values(from_metadata(task.metadata, METADATA_PREFIX)).items():
        table, dot, key = path.partition(".")
        if dot and table in {"verifier", "agent", "environment"}:
            tables[table].setdefault(key, value)
        else:
            tables.setdefault(path, value)
    return tables


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
