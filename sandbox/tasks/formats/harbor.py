"""Harbor directories: ``task.toml``, ``instruction.md``, ``environment/``, ``solution/solve.sh``, ``tests/test.sh``,
``weights.json``; and of our own, which other harnesses ignore, ``foils/NAME.sh`` (:attr:`Task.foils`).

The tests leave ``ctrf.json``, ``reward.json`` or ``reward.txt`` in ``/logs/verifier``.  ``allow_internet`` opens the
agent's and the tests' network only where the file says ``true`` itself: unsaid, both have none.  Where ``weights.json``
names tests, all of them are expected.  What Harbor cannot say is in ``longshore.yaml`` (:mod:`sandbox.tasks.formats.folders`).
"""

from __future__ import annotations

import json
import tomllib
from typing import Annotated, Any, Literal, cast

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from sandbox.tasks.container_files import compose, compose_writer
from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose_schema import Mebibytes
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.file_tree import FileTree, TreeFile, as_tree_files
from sandbox.tasks.formats.folders import FolderFormat, read_environment, write_environment
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import GradingLevel, NetworkMode, Task, TaskNetwork
from sandbox.tasks.yaml_text import dump_yaml

MAIN = "main"
FOILS = "foils"
REPORTS = ("/logs/verifier/ctrf.json", "/logs/verifier/reward.json", "/logs/verifier/reward.txt")
_HARNESS_FOLDER = compose.HARNESS_FOLDER
_VARIABLES = {
    "MAIN_IMAGE_NAME": "",
    "PREBUILT_IMAGE_NAME": "",
    "CONTEXT_DIR": ".",
    "TEST_DIR": "/tests",
    "HOST_VERIFIER_LOGS_PATH": f"{_HARNESS_FOLDER}verifier",
    "HOST_AGENT_LOGS_PATH": f"{_HARNESS_FOLDER}agent",
    "HOST_ARTIFACTS_PATH": f"{_HARNESS_FOLDER}artifacts",
    "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
    "ENV_AGENT_LOGS_PATH": "/logs/agent",
    "ENV_ARTIFACTS_PATH": "/logs/artifacts",
}
_PREFIX = "harbor."
"""Of metadata that is not in Harbor's own ``[metadata]``."""


def _with_unit(value: object) -> object:
    if not isinstance(value, str) or value.strip()[-1:].isdigit():
        raise ValueError(f"{value!r} has no unit: write '512M' or '2G'")
    return value


Sized = Annotated[Mebibytes, BeforeValidator(_with_unit)]
Positive = Annotated[float, Field(gt=0)]
RootUser = Literal["", "root", 0, "0"] | None
"""Whose commands run: everything here runs as root."""


class _Table(BaseModel):
    """Keys that change how a task is run and that we cannot follow are declared to be empty; others are kept."""

    model_config = ConfigDict(extra="allow")


class _Verifier(_Table):
    timeout_sec: Positive = 600.0
    environment_mode: Literal["shared", "separate"] = "shared"
    env: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=0)
    user: RootUser = None


class _Agent(_Table):
    timeout_sec: Positive | None = None
    user: RootUser = None


class _Environment(_Table):
    build_timeout_sec: Positive = 600.0
    docker_image: str = ""
    cpus: Positive = 1.0
    memory: Sized | None = None
    memory_mb: Annotated[int, Field(gt=0)] = 2048
    storage: Sized | None = None
    storage_mb: Annotated[int, Field(gt=0)] = 10240
    allow_internet: bool | None = None
    env: dict[str, str] = Field(default_factory=dict[str, str])
    gpus: Literal[0] = 0
    mcp_servers: list[Any] = Field(default_factory=list[Any], max_length=0)
    skills_dir: None = None


class _Solution(_Table):
    env: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=0)


class _TaskToml(_Table):
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    verifier: _Verifier = _Verifier()
    agent: _Agent = _Agent()
    environment: _Environment = _Environment()
    solution: _Solution = _Solution()
    artifacts: list[Annotated[str, Field(pattern="^/")]] = Field(default_factory=list[str])
    steps: list[Any] = Field(default_factory=list[Any], max_length=0)


_AGENT_S = 600.0
"""Harbor has no limit; we always have one."""
_VERSIONS = ("version", "schema_version")


def _read(name: str, tree: FileTree, problems: TaskProblems) -> Task:
    said = _toml(tree, problems)
    environment, verifier = said.environment, said.verifier
    memory_mb = environment.memory or environment.memory_mb
    variables = _VARIABLES | {"CPUS": f"{environment.cpus:g}", "MEMORY": f"{memory_mb}M"}
    composed = compose.read_compose_file(tree, "environment", MAIN, variables, problems) or compose.ComposeFacts()
    inside = tree.subtree("environment")
    plan = composed.build
    if plan is None and not environment.docker_image and not composed.image:
        plan = BuildPlan() if "Dockerfile" in inside.files else None
    private = ("docker-compose.yaml", "docker-compose.yml")
    ground = read_environment(inside, plan, environment.docker_image or composed.image, private, problems)
    tests = problems.read_regular_files(tree, "tests")
    tests.pop("test.sh", None)
    run_tests = problems.read_text(tree, "tests/test.sh", "without it nothing can be graded")
    solution_files = problems.read_regular_files(tree, "solution")
    solution_files.pop("solve.sh", None)
    weights = _weights(tree, problems)
    internet = NetworkMode.FULL if environment.allow_internet else NetworkMode.NONE
    return Task(
        id=name,
        instruction=problems.read_text(tree, "instruction.md", "it is what the agent is told").strip() or "unreadable",
        family=str(said.metadata.get("category", "")),
        image=ground.image,
        setup=ground.setup,
        files=ground.files,
        tests=tests,
        run_tests=run_tests,
        expected_tests=tuple(weights) or find_expected_tests(run_tests, tests),
        weights=weights,
        reports=REPORTS,
        solution=problems.read_text(tree, "solution/solve.sh"),
        solution_files=solution_files,
        foils=_foils(tree, problems),
        build=ground.build,
        services=composed.services,
        network=TaskNetwork(agent=internet, verify=internet),
        grading=GradingLevel.ARTIFACTS if verifier.environment_mode == "separate" else GradingLevel.SAME,
        artifacts=tuple(said.artifacts),
        env=environment.env | composed.env,
        metadata=_metadata(said),
        workdir=composed.workdir or ground.workdir,
        agent_timeout_s=said.agent.timeout_sec or _AGENT_S,
        test_timeout_s=verifier.timeout_sec,
        build_timeout_s=environment.build_timeout_sec,
        memory_mb=composed.memory_mb or memory_mb,
        pids=composed.pids or 256,
        capabilities=composed.capabilities,
        cpus=composed.cpus or environment.cpus,
        storage_mb=environment.storage or environment.storage_mb,
    )


def _toml(tree: FileTree, problems: TaskProblems) -> _TaskToml:
    try:
        value = tomllib.loads(problems.read_text(tree, "task.toml"))
    except (ValueError, RecursionError) as error:
        problems.add("task.toml is not readable TOML", str(error))
        value = {}
    return problems.validate("task.toml", value, _TaskToml) or _TaskToml()


def _metadata(said: _TaskToml) -> dict[str, str]:
    """``[metadata]`` under its own keys, everything else that we do not use under ``harbor.``"""
    others = {key: value for key, value in (said.model_extra or {}).items() if key not in _VERSIONS}
    for name in ("verifier", "agent", "environment", "solution"):
        table = cast("_Table", getattr(said, name))
        others |= {f"{name}.{key}": value for key, value in (table.model_extra or {}).items()}
    own = {key: value for key, value in said.metadata.items() if key != "category" and not key.startswith(_PREFIX)}
    return to_metadata(own) | to_metadata(others, _PREFIX)


def _foils(tree: FileTree, problems: TaskProblems) -> dict[str, str]:
    inside = tree.subtree(FOILS)
    for path in sorted(inside.files.keys() | inside.irregular):
        if "/" in path or not path.endswith(".sh"):
            problems.add(f"{FOILS}/{path} is no shell script", "each of its files is an attempt, named NAME.sh")
    return {path.removesuffix(".sh"): problems.read_text(tree, f"{FOILS}/{path}") for path in sorted(inside.files)}


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


def _write(task: Task) -> dict[str, TreeFile]:
    environment, plan = write_environment(task, "main")
    if task.build and _needs_no_compose(task):
        environment, plan = as_tree_files(task.build.files, task.build.executable), BuildPlan()
    services: dict[str, object] = {}
    for service in task.services:
        services[service.name] = compose_writer.service_section(service, f"./services/{service.name}")
        if service.build:
            environment |= as_tree_files(
                service.build.files, service.build.executable, under=f"services/{service.name}"
            )
    if services or plan != BuildPlan():
        section = {"build": compose_writer.build_section(plan)}
        environment["docker-compose.yaml"] = TreeFile(dump_yaml({"services": {MAIN: section} | services}))
    files = as_tree_files(task.tests, under="tests") | as_tree_files(task.solution_files, under="solution")
    files["tests/test.sh"] = TreeFile(task.run_tests.encode(), executable=True)
    if task.solution:
        files["solution/solve.sh"] = TreeFile(task.solution.encode(), executable=True)
    files |= as_tree_files({f"{name}.sh": script.encode() for name, script in task.foils.items()}, under=FOILS)
    if task.weights:
        files["weights.json"] = TreeFile(json.dumps(task.weights, indent=1).encode())
    files["instruction.md"] = TreeFile(f"{task.instruction}\n".encode())
    files["task.toml"] = TreeFile(tomli_w.dumps(_tables(task)).encode())
    return files | {f"environment/{path}": file for path, file in environment.items()}


def _needs_no_compose(task: Task) -> bool:
    """``environment/`` is the build context itself."""
    build = task.build
    return (
        build is not None
        and not (task.files or task.setup or task.services or build.args or build.target)
        and build.dockerfile == "Dockerfile"
        and not any(path.startswith("docker-compose.y") for path in build.files)
    )


def _tables(task: Task) -> dict[str, Any]:
    own = {key: value for key, value in task.metadata.items() if not key.startswith(_PREFIX) and key != "category"}
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
    for path, value in _toml_values(from_metadata(task.metadata, _PREFIX)).items():
        table, dot, key = path.partition(".")
        if dot and table in {"verifier", "agent", "environment"}:
            tables[table].setdefault(key, value)
        else:
            tables.setdefault(path, value)
    return tables


def _toml_values(values: dict[str, object]) -> dict[str, Any]:
    """Less those that TOML has no value for; they go to ``longshore.yaml``."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        try:
            tomllib.loads(tomli_w.dumps({key: value}))
        except (TypeError, ValueError):
            continue
        kept[key] = value
    return kept


FORMAT = FolderFormat("task.toml", _read, _write)
