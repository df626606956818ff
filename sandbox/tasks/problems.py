"""Collects all problems of a task: a loader records each one and continues, so that one run finds them all.

A problem makes the task unusable.  A remark names what the task says and longshore does not follow because it cannot
change what the agent or the tests see.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from protocol.cli.validation_errors import describe_invalid_value
from protocol.trajectory import MAX_REWARD
from sandbox.capabilities import SERVICE_CAPABILITIES
from sandbox.process_limits import find_limit_problems
from sandbox.tasks.allowed_hosts import NOT_A_HOST, parse_allowed_host
from sandbox.tasks.file_tree import FileTree, entry_problem, is_within, path_problem
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.service_order import find_order_problems
from sandbox.tasks.task import Task, TaskError
from sandbox.tasks.task_containers import RESTART
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.yaml_text import YamlError, parse_yaml

Model = TypeVar("Model", bound=BaseModel)
REGULAR_FILES_ONLY = (
    "pipes, devices, links out of the copied folder and links to folders in a linked one do not come into a sandbox"
)
_TYPE_NAME = re.compile(r"(constrained-)?(int|float|str|bool)|(list|dict|tuple|function-\w+)\[.*\]")
"""Pydantic's name of one type among several that a value may have, which it puts into the value's place."""
_SHOWN = 300
"""Maximum characters of an unexpected error that are shown."""


class TaskProblems:
    """Problems of one task; ``location`` is its folder, or its file and line."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.found: list[TaskError] = []
        self.remarks: list[str] = []
        """Sentences without a subject, which is the task."""

    def add(self, what: str, why: str) -> None:
        self.found.append(TaskError(self.location, what, why))

    def remark(self, what: str) -> None:
        self.remarks.append(what)

    def loaded(self, task: Task | None) -> LoadedTask:
        """Return ``task`` if it has no problem, with everything that was found."""
        return LoadedTask(None if self.found else task, tuple(self.found), tuple(self.remarks))

    @contextmanager
    def collecting_errors(self, what: str = "cannot be read") -> Generator[None]:
        """Record any error that ends the block; loading the other tasks continues."""
        try:
            yield
        except TaskError as error:
            self.found.append(error)
        except RecursionError:
            self.add(what, "it is nested too deeply")
        except Exception as error:  # noqa: BLE001  the boundary: an error of one task does not affect the others
            self.add(what, f"{type(error).__name__}: {error}"[:_SHOWN])

    def read_text(self, tree: FileTree, path: str, needed: str = "") -> str:
        """Return a text file without byte order mark; empty if it is missing or not text (a problem).

        ``needed``: the reason why it must exist.
        """
        if path in tree.irregular:
            self.add(f"{path} is not a regular file", REGULAR_FILES_ONLY)
            return ""
        file = tree.files.get(path)
        try:
            text = file.data.decode("utf-8-sig") if file else ""
        except UnicodeDecodeError as error:
            self.add(f"{path} is not readable text", str(error))
            return ""
        if needed and not text.strip():
            self.add(f"{path} is missing or empty", needed)
        return text

    def parse_yaml(self, tree: FileTree, path: str, model: type[Model]) -> Model | None:
        """Return a YAML file as a ``model``; None, with problems, if it is invalid."""
        try:
            value: object = parse_yaml(self.read_text(tree, path))
        except YamlError as error:
            self.add(f"{path} is not readable YAML", str(error))
            return None
        return self.validate(path, value, model)

    def validate(self, name: str, value: object, model: type[Model], *, unknown: str = "unknown key") -> Model | None:
        """Return ``value`` as a ``model``; None, with problems, if it is invalid. ``unknown``: text for unknown
        keys."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self.add_validation_error(name, error, unknown=unknown)
            return None

    def add_validation_error(
        self, name: str, error: ValidationError, *, at: str = "", unknown: str = "unknown key"
    ) -> None:
        """Record every error of a validation of ``name``, below its key ``at``; as one, what each of a value's types
        says of it."""
        reasons: dict[str, list[str]] = {}
        for each in error.errors(include_url=False, include_input=False):
            path = [str(part) for part in each["loc"] if not _TYPE_NAME.fullmatch(str(part))]
            where = ".".join([at, *path] if at else path) or "the whole file"
            reason = unknown if each["type"] == "extra_forbidden" else describe_invalid_value(each)
            reasons.setdefault(where, []).append(reason)
        for where, said in reasons.items():
            self.add(f"{name}: {where}", " or ".join(said))

    def read_regular_files(self, tree: FileTree, folder: str) -> dict[str, bytes]:
        """Return the contents below ``folder`` by path, empty folders included; links, pipes and devices are
        problems."""
        inside = tree.subtree(folder)
        for path in sorted(inside.irregular):
            self.add(f"{folder}/{path} is not a regular file", REGULAR_FILES_ONLY)
        return inside.contents()

    def check_rules(self, task: Task) -> None:
        """Record each rule of every format that ``task`` breaks."""
        for what, why in find_broken_rules(task):
            self.add(what, why)


def _variables(task: Task) -> Iterator[tuple[str, str]]:
    of_tests = [each.env for each in task.tests_environments]
    for variables in (task.env, task.agent_env, task.test_env, task.solution_env, *of_tests):
        yield from variables.items()


_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NOT_NAMES = {".", ".."}
_PRIVATE_FOLDERS = ("/logs/verifier", "/tests")
"""Folders that are the tests' own beside live processes of the agent."""


def find_broken_rules(task: Task) -> Iterator[tuple[str, str]]:
    """Yield the problem and its reason for each rule that ``task`` breaks. Pure."""
    found = list(_broken_rules(task))
    yield from found
    if not task.steps:
        return
    yield from _broken_steps(task)
    for step in task.in_steps:
        of_step = (each for each in _broken_rules(replace(step, steps=())) if each not in found)
        yield from ((f"step {step.step_name}: {what}", why) for what, why in of_step)


_OF_STEPS = (
    *("tests", "run_tests", "expected_tests", "weights", "answer", "solution", "solution_files", "foils"),
    *("artifacts", "artifact_excludes", "collect", "test_env"),
)
_LAST_ONLY = {GradingLevel.SAME, GradingLevel.COMMIT}
"""Levels that end the agent's processes."""


def _broken_steps(task: Task) -> Iterator[tuple[str, str]]:
    for name in _OF_STEPS:
        if getattr(task, name):
            yield f"{name} beside steps", "each step has its own"
    if task.grading not in {GradingLevel.SAME, GradingLevel.LIVE}:
        yield f"grading {task.grading} beside steps", "name it in each step"
    names = [step.name.casefold() for step in task.steps]
    for step in task.steps:
        if not step.name.strip(". ") or "/" in step.name or names.count(step.name.casefold()) > 1:
            yield f"the step name {step.name!r}", "it is a folder of its own"
        if step.grading in _LAST_ONLY and step is not task.steps[-1]:
            yield f"step {step.name}: grading {step.grading}", "it ends what the agent left for the next step: use live"
        if not step.run_tests.strip():
            yield f"step {step.name} has no tests", "nothing can be graded"
        if not all(map(math.isfinite, step.min_rewards.values())):
            yield f"step {step.name}: min_reward is not finite", "no reward could be compared with it"
        for path in step.files:
            if wrong := entry_problem(path):
                yield f"step {step.name}: files: {path!r} {wrong}", "it is written below the working directory"


def _broken_rules(task: Task) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(task.id) or task.id in _NOT_NAMES:
        yield f"the name {task.id!r} has other characters than A-Z a-z 0-9 _ . -", "it is the id"
    if not task.instruction.strip():
        yield "the instruction is empty", "the agent would get no instruction"
    if len(set(task.expected_tests)) < len(task.expected_tests):
        yield "expected_tests names a test twice", "each test is counted once"
    for name, value in _variables(task):
        if not name or "=" in name or "\0" in name + value:
            yield f"env: {name!r} is not a variable", "a name has no = and neither it nor its value has a NUL byte"
    if task.tests_environment is not None and not task.steps and task.grading is not GradingLevel.ARTIFACTS:
        yield f"tests_environment at grading {task.grading}", "only at artifacts do tests have a container of their own"
    started = (word for each in (task, *task.services) for word in (*(each.entrypoint or ()), *each.command))
    if any("\0" in word for word in started):
        yield "entrypoint or command has a NUL byte", "no process can have it as an argument"
    yield from _broken_services(task)
    for name in task.foils:
        if not _NAME.fullmatch(name):
            yield f"the foil {name!r} has other characters than A-Z a-z 0-9 _ . -", "it is a file's name"
    yield from (
        (f"allowed_hosts: {host!r}", f"it {NOT_A_HOST}")
        for host in task.network.allowed_hosts
        if parse_allowed_host(host) is None
    )
    yield from _broken_numbers(task)
    yield from _broken_paths(task)
    yield from _broken_volumes(task)


def _broken_services(task: Task) -> Iterator[tuple[str, str]]:
    for name in (*task.service_names, *task.aliases):
        if not _NAME.fullmatch(name):
            yield f"the service name {name!r} has other characters than A-Z a-z 0-9 _ . -", "it is a host name"
    for service in task.services:
        if more := set(service.capabilities) - set(SERVICE_CAPABILITIES):
            yield f"service {service.name}: capabilities {', '.join(sorted(more))}", "no service may have them"
        if not RESTART.fullmatch(service.restart):
            yield f"service {service.name}: restart {service.restart!r}", "it is always, on-failure or on-failure:N"
        if service.pids < 1:
            yield f"service {service.name}: pids is {service.pids}", "it must be above 0"
    yield from find_order_problems(task.services)


_LIMITS = ("agent_timeout_s", "test_timeout_s", "build_timeout_s", "memory_mb", "pids", "cpus", "storage_mb", "shm_mb")


def _broken_numbers(task: Task) -> Iterator[tuple[str, str]]:
    for name in _LIMITS:
        value: float = getattr(task, name)
        if not 0 < value < math.inf:
            yield f"{name} is {value:g}", "it must be above 0 and finite"
    for each in (task, *task.services):
        yield from find_limit_problems(each.ulimits)
    for name, weight in task.weights.items():
        if not 0 <= weight <= MAX_REWARD:
            yield f"the weight of test {name} is {weight:g}", f"it must be from 0 to {MAX_REWARD:g}"
    if task.weights and not any(task.weights.values()):
        yield "all weights are 0", "no attempt could score"


def _broken_paths(task: Task) -> Iterator[tuple[str, str]]:
    absolute = {
        "workdir": [each.workdir or "/" for each in (task, *task.services)],
        "files": [path.removesuffix("/") for path in task.files],
        "reports": task.reports,
        "artifacts": task.artifacts,
        "read_only": task.read_only,
        "volumes": [each.target for each in task.volumes],
    }
    for name, paths in absolute.items():
        for path in paths:
            if not path.startswith("/") or (path != "/" and path_problem(path[1:])):
                yield f"{name}: {path!r} is not a plain absolute path", "set it in longshore.yaml"
    for path in task.reports if task.grading is GradingLevel.LIVE else ():
        if not is_within(path, _PRIVATE_FOLDERS):
            yield f"reports: at grading level live an agent can write {path}", f"move it below {_PRIVATE_FOLDERS[0]}"
    for path in task.artifact_excludes.keys() - set(task.artifacts):
        yield f"artifact_excludes: {path!r} is no artifact", "name it in artifacts"
    if "/" in task.artifacts:
        yield "artifacts: '/' is the whole container", "grade at level commit, or name folders in it"
    builds = [each.build.files for each in (task, *task.services) if each.build]
    for name, paths in [
        ("tests", task.tests),
        ("solution", task.solution_files),
        *(("build", each) for each in builds),
    ]:
        for path in paths:
            if wrong := entry_problem(path):
                yield f"{name}: {path!r} {wrong}", "it is written below a folder"


def _broken_volumes(task: Task) -> Iterator[tuple[str, str]]:
    of_services = {each.volume for service in task.services for each in service.volumes}
    for each in task.volumes:
        if each.volume not in of_services:
            yield f"volumes: {each.volume!r} is a volume of no service", "only what a service has too is shared"
    for volume in sorted(of_services):
        if not _NAME.fullmatch(volume):
            yield f"the volume {volume!r} has other characters than A-Z a-z 0-9 _ . -", "Docker has no such volumes"
