"""Terminal-Bench 1 directories: ``task.yaml``, ``Dockerfile``, ``docker-compose.yaml`` with the service ``client``,
``run-tests.sh``, ``solution.sh`` or ``solution.yaml``, ``tests/``.

A container has the internet, as it has in Terminal-Bench, unless ``network_mode: none`` says otherwise.  The build
context is the folder without tests, solution and task files, unless a COPY names them. The output is a
complete Terminal-Bench task; fields that it lacks are in ``longshore.yaml`` (:mod:`sandbox.tasks.formats.folders`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field

from sandbox.default_limits import SHM_MB
from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose import read_compose_file
from sandbox.tasks.container_files.compose_volumes import HARNESS_FOLDER
from sandbox.tasks.container_files.compose_writer import (
    build_section,
    command_section,
    escape_variables,
    limits_section,
    memory_folders_section,
    shared_folders,
    ulimits_section,
    write_compose,
)
from sandbox.tasks.expected_tests import find_expected_tests
from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.file_tree import FileTree, TreeFile, as_tree_files
from sandbox.tasks.formats.folders import (
    FolderFormat,
    load_task_folder,
    read_environment,
    write_environment,
    write_task_folder,
)
from sandbox.tasks.live_evidence import suggest_grading
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.task_grading import ResultsFormat
from sandbox.tasks.task_network import OFFLINE, ONLINE
from sandbox.tasks.yaml_text import YamlError, dump_yaml, parse_yaml

CLIENT = "client"
_COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml")
_PRIVATE = (
    "task.yaml",
    *_COMPOSE_FILES,
    "run-tests.sh",
    "solution.sh",
    "solution.yaml",
    "tests",
    "longshore.yaml",
)
_VARIABLES = {
    "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "",
    "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": "",
    "T_BENCH_TASK_DOCKER_NAME_PREFIX": "",
    "T_BENCH_TASK_BUILD_CONTEXT_DIR": ".",
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_TASK_LOGS_PATH": f"{HARNESS_FOLDER}logs",
    "T_BENCH_CONTAINER_LOGS_PATH": "/logs",
    "T_BENCH_TASK_AGENT_LOGS_PATH": f"{HARNESS_FOLDER}agent-logs",
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs",
}
_DESCRIPTIVE = frozenset((
    "author_name", "author_email", "difficulty", "tags", "disable_asciinema", "estimated_duration_sec",
    "expert_time_estimate_min", "junior_time_estimate_min",
))  # fmt: skip
"""Terminal-Bench's other keys."""
_WRITTEN_IF_UNSAID: dict[str, object] = {"difficulty": "unknown"}
"""Key that Terminal-Bench requires and that carries no information."""

Positive = Annotated[float, Field(gt=0)]


class _Description(BaseModel):
    """A part of the instruction, in older files."""

    model_config = ConfigDict(extra="allow")
    key: str
    description: str


class _TaskYaml(BaseModel):
    """The fields that are used; others are kept unchanged."""

    model_config = ConfigDict(extra="allow")
    instruction: Annotated[str, Field(min_length=1)]
    """The text, or the key of one of ``descriptions``."""
    descriptions: list[_Description] = Field(default_factory=list[_Description])
    category: str = ""
    max_agent_timeout_sec: Positive = 360.0
    max_test_timeout_sec: Positive = 60.0
    parser_name: ResultsFormat = ResultsFormat.PYTEST
    run_tests_in_same_shell: bool = False

    def text(self) -> str:
        """Return what the agent is told."""
        if all(each.key != self.instruction for each in self.descriptions):
            return self.instruction.strip()
        return "\n\n".join(each.description.strip() for each in self.descriptions)


def _read(name: str, tree: FileTree, problems: TaskProblems) -> Task:
    described = problems.parse_yaml(tree, "task.yaml", _TaskYaml) or _TaskYaml(instruction="unreadable")
    composed = read_compose_file(tree, _COMPOSE_FILES, CLIENT, _VARIABLES, problems)
    plan = composed.build or (BuildPlan() if "Dockerfile" in tree.files and not composed.image else None)
    start = read_environment(tree, plan, composed.image, _PRIVATE, problems, folders=composed.folders)
    tests = problems.read_regular_files(tree, "tests")
    run_tests = problems.read_text(tree, "run-tests.sh", "without it nothing can be graded")
    if unknown := sorted((described.model_extra or {}).keys() - _DESCRIPTIVE):
        problems.remark(f"task.yaml has keys that Terminal-Bench does not know either: {', '.join(unknown)}")
    instruction = described.text()
    if described.run_tests_in_same_shell:
        problems.add(
            "task.yaml: run_tests_in_same_shell is not supported",
            "tests in the agent's own shell run what the agent leaves in it, such as functions, traps and a PATH: let "
            "the tests look at files and processes instead, and set it to false",
        )
    kept = described.model_extra or {}
    may_have_user = bool(start.build or start.image or composed.user)
    return Task(
        id=name,
        instruction=instruction,
        family=described.category,
        image=start.image,
        setup=start.setup,
        files=start.files,
        tests=tests,
        run_tests=run_tests,
        results_format=described.parser_name,
        expected_tests=find_expected_tests(run_tests, tests) if described.parser_name is ResultsFormat.PYTEST else (),
        solution=problems.read_text(tree, "solution.sh") or _keystrokes(tree, problems),
        build=start.build,
        services=composed.services,
        network=composed.network(ONLINE),
        grading=suggest_grading(run_tests, tests, instruction, composed.env),
        env=composed.env,
        login_shell=True,
        agent_user=composed.user,
        container_user=composed.user,
        tests_user="root" if may_have_user else composed.user,
        metadata=to_metadata({k: v for k, v in kept.items() if _WRITTEN_IF_UNSAID.get(k) != v}),
        workdir=composed.workdir or start.workdir,
        agent_timeout_s=described.max_agent_timeout_sec,
        test_timeout_s=described.max_test_timeout_sec,
        memory_mb=composed.memory_mb or 2048,
        pids=composed.pids or 256,
        cpus=composed.cpus or 1.0,
        shm_mb=composed.shm_mb or SHM_MB,
        tmpfs=composed.tmpfs,
        ulimits=composed.ulimits,
        read_only=composed.read_only,
        volumes=composed.volumes,
        entrypoint=composed.entrypoint,
        command=composed.command,
        hostname=composed.hostname,
        aliases=composed.aliases,
        healthcheck=composed.healthcheck,
    )


def _keystrokes(tree: FileTree, problems: TaskProblems) -> str:
    """Return ``solution.yaml``, a list of typed commands, as a script; empty when there is none."""
    text = problems.read_text(tree, "solution.yaml")
    try:
        steps: object = parse_yaml(text)
    except YamlError as error:
        problems.add("solution.yaml is not readable YAML", str(error))
        return ""
    if not text.strip():
        return ""
    if not isinstance(steps, list) or not all(isinstance(each, dict) for each in cast("list[object]", steps)):
        problems.add("solution.yaml is no list of commands", "each entry has a command: write a solution.sh")
        return ""
    commands = [cast("dict[str, object]", each) for each in cast("list[object]", steps)]
    if any(each.get("block") is False for each in commands[:-1]):
        problems.remark("solution.yaml says block: false, but here the oracle waits for the end of each command")
    if any(not isinstance(each.get("command"), str) or each.get("append_enter") is False for each in commands):
        problems.add("solution.yaml presses single keys", "only whole commands make a script: write a solution.sh")
        return ""
    return "".join(f"{each['command']}\n" for each in commands)


def _write(task: Task) -> dict[str, TreeFile]:
    if task.steps:
        raise TaskError(Path(task.id), "has steps, which Terminal-Bench's format does not have", "use harbor's")
    files, plan = write_environment(task, "environment")
    files |= as_tree_files(task.tests, under="tests")
    for name, script in {"run-tests.sh": task.run_tests, "solution.sh": task.solution}.items():
        if script:
            files[name] = TreeFile(script.encode(), executable=True)
    client: dict[str, object] = {
        "build": build_section(plan),
        "image": "${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}",
        "container_name": "${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}",
        "command": ["sh", "-c", "sleep infinity"],
        "environment": {"TEST_DIR": "${T_BENCH_TEST_DIR}"} | cast("dict[str, str]", escape_variables(task.env)),
        "volumes": [
            "${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}",
            "${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}",
            *shared_folders(task),
        ],
        "pids_limit": task.pids,
    }
    client |= command_section(task)
    if task.agent_user:
        client["user"] = task.agent_user
    if task.network == OFFLINE and not task.services:
        client["network_mode"] = "none"
    client |= limits_section(task.memory_mb, task.cpus) | ulimits_section(task) | memory_folders_section(task)
    files |= write_compose(CLIENT, client, task.services, task.aliases)
    described = {k: v for k, v in from_metadata(task.metadata).items() if k not in _TaskYaml.model_fields}
    described = {"instruction": task.instruction} | described
    described |= {key: value for key, value in _WRITTEN_IF_UNSAID.items() if key not in described}
    described |= {
        "category": task.family,
        "parser_name": task.results_format.value,
        "max_agent_timeout_sec": task.agent_timeout_s,
        "max_test_timeout_sec": task.test_timeout_s,
    }
    return {"task.yaml": TreeFile(dump_yaml(described))} | files


FORMAT = FolderFormat("task.yaml", _read, _write)


def load_task(folder: Path) -> Task:
    """Load one task. Raises TaskError with the first problem and its fix."""
    return load_task_folder(FORMAT, folder).require_task()


def write_task(task: Task, parent: Path) -> Path:
    """Write ``task`` as ``parent/<id>``, so that :func:`load_task` returns an equal task.

    Raises TaskError when the folder exists already, or when the task breaks a rule.
    """
    return write_task_folder(FORMAT, task, parent)
