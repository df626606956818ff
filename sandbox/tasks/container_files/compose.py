"""Reads a compose file into the parts of a task. ``compose_schema`` declares the supported part of Compose. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.container_files.compose_schema import (
    ComposeAgentService,
    ComposeBuild,
    ComposeFile,
    ComposeHealthcheck,
    ComposeService,
    ComposeSideService,
)
from sandbox.tasks.container_files.compose_yaml import parse_compose_yaml, scalar_text
from sandbox.tasks.container_files.variables import substitute_variables
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import OFFLINE, NetworkMode, TaskNetwork, TaskService
from sandbox.tasks.yaml_text import YamlError

HARNESS_FOLDER = "/harness/"
"""Prefix of the harness's own host paths: a volume from there is ignored."""
_OUTSIDE = "not in the supported part of Compose: see sandbox/tasks/container_files/compose_schema.py"
_WAITS = {"sleep infinity", "tail -f /dev/null", "bash", "sh", "/bin/bash", "/bin/sh", ""}
_VOLUME = re.compile(r"(?:(?P<name>[A-Za-z0-9][\w.-]*):)?/[^:]*(?::[a-z,]+)?")
"""A volume of Docker's, with a name or without; a folder of the host begins with a dot or a slash."""
_CAPABILITIES = {*BASE_CAPABILITIES, "NET_BIND_SERVICE"}
_GRADER = ("T_BENCH_", "TEST_DIR")
"""Prefixes of variables that the grader sets itself."""


@dataclass(frozen=True, slots=True)
class ComposeFacts:
    """The parts of a task that a compose file defines."""

    image: str = ""
    build: BuildPlan | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    shm_mb: int | None = None
    tmpfs: tuple[str, ...] = ()
    user: str = ""
    offline: bool = False
    """The agent's service has no network."""
    builds_offline: bool = False
    services: tuple[TaskService, ...] = ()

    def network(self, otherwise: TaskNetwork) -> TaskNetwork:
        """Return the task's network: what the file says, and ``otherwise`` where it says nothing."""
        network = OFFLINE if self.offline else otherwise
        return replace(network, build=NetworkMode.NONE) if self.builds_offline else network


def read_compose_file(
    tree: FileTree, names: Sequence[str], main: str, variables: Mapping[str, str], problems: TaskProblems
) -> ComposeFacts | None:
    """Read the compose file of a task: the first of ``names`` that is in the folder ``tree``.

    ``main`` is the agent's service.  Returns None when there is no file, or when it is invalid: then with problems.
    """
    name = next((each for each in names if each in tree.files), "")
    if not name:
        return None
    try:
        raw: object = parse_compose_yaml(problems.read_text(tree, name))
    except YamlError as error:
        problems.add(f"{name} is not readable YAML", str(error))
        return None
    content = _without_extensions(substitute_variables(raw, variables, name, problems))
    file = problems.validate(name, content, ComposeFile, unknown=_OUTSIDE)
    if file is None:
        return None
    agent = ComposeFacts()
    services: list[TaskService] = []
    volumes: Counter[str] = Counter()
    if len(file.networks) > 1:
        problems.add(f"{name} has networks {', '.join(file.networks)}", "all services share one private network")
    if main not in file.services:
        problems.add(f"{name} has services {', '.join(sorted(file.services)) or 'none'}", f"{main!r} must be one")
    for key, given in file.services.items():
        where = f"{name}: services.{key}"
        if key == main:
            if read_main := problems.validate(where, given, ComposeAgentService, unknown=_OUTSIDE):
                _remark(read_main, where, problems)
                volumes.update(_named_volumes(read_main, where, problems))
                agent = _agent(read_main, where, len(file.services) > 1, problems)
        elif side := problems.validate(where, given, ComposeSideService, unknown=_OUTSIDE):
            _remark(side, where, problems)
            if side.profiles:
                problems.remark(f"{where} is left out: it is started only with a profile ({', '.join(side.profiles)})")
                continue
            volumes.update(_named_volumes(side, where, problems))
            services += _service(key, side, tree, where, problems)
    for volume in (each for each, users in volumes.items() if users > 1):
        problems.add(f"{name}: several services use the volume {volume!r}", "services share no folder")
    return replace(agent, services=tuple(services))


def _named_volumes(given: ComposeService, where: str, problems: TaskProblems) -> set[str]:
    """Return the names of a service's volumes: if it alone has one, that is a folder of its container."""
    names: set[str] = set()
    for volume in given.volumes:
        if volume.startswith(HARNESS_FOLDER):
            continue
        found = _VOLUME.fullmatch(volume)
        if not found:
            problems.add(f"{where}.volumes: {volume!r}", "a sandbox shares no folder with its host")
        elif found["name"]:
            names.add(found["name"])
    return names


def _remark(given: ComposeService, where: str, problems: TaskProblems) -> None:
    if given.ports:
        problems.remark(f"{where}.ports are not published: services reach each other, and nothing outside does")
    if given.platform:
        problems.remark(f"{where}.platform is not used: images are those of this machine")


def _agent(given: ComposeAgentService, where: str, accompanied: bool, problems: TaskProblems) -> ComposeFacts:
    command = _words(given.command, where, problems)
    command_text = (
        command[2] if len(command) == 3 and command[0] in {"sh", "bash", "/bin/sh", "/bin/bash"} else " ".join(command)
    )
    if command_text not in _WAITS:
        problems.add(
            f"{where}.command: {' '.join(command)!r}",
            "PID 1 is longshore's: only a waiting command has no effect",
        )
    for name in given.cap_add:
        if name.upper().removeprefix("CAP_") not in _CAPABILITIES:
            problems.add(
                f"{where}.cap_add: {name}", f"a sandbox has {', '.join(BASE_CAPABILITIES)}: others are not safe"
            )
    if given.network_mode and accompanied:
        problems.add(f"{where}.network_mode: {given.network_mode!r}", "its services could not be reached")
    _hostname(given, "", where, problems)
    limits = given.deploy.resources.limits
    build = _plan(given.build, where, problems)
    return ComposeFacts(
        "" if build else given.image,
        build,
        _texts(given.environment, f"{where}.environment", problems),
        given.working_dir,
        given.mem_limit or limits.memory,
        given.cpus or limits.cpus,
        given.pids_limit or limits.pids,
        given.shm_size,
        tuple(given.tmpfs),
        given.user,
        given.network_mode == "none",
        given.build is not None and given.build.network == "none",
    )


def _service(
    name: str, given: ComposeSideService, folder: FileTree, where: str, problems: TaskProblems
) -> list[TaskService]:
    _hostname(given, name, where, problems)
    build = None
    if plan := _plan(given.build, where, problems):
        build = read_build_context(folder, plan, (), problems)
        if build is None:
            return []
    elif not given.image:
        problems.add(f"{where} has no image", "add image or build")
        return []
    limits, default = given.deploy.resources.limits, TaskService(name)
    return [
        TaskService(
            name,
            "" if build else given.image,
            build,
            tuple(_words(given.command, where, problems)),
            _texts(given.environment, f"{where}.environment", problems),
            _health(given.healthcheck),
            given.mem_limit or limits.memory or default.memory_mb,
            given.cpus or limits.cpus or default.cpus,
            given.shm_size or default.shm_mb,
            tuple(given.tmpfs),
        )
    ]


def _plan(given: ComposeBuild | None, where: str, problems: TaskProblems) -> BuildPlan | None:
    if given is None:
        return None
    args = _texts(given.args, f"{where}.build.args", problems)
    return BuildPlan(posixpath.normpath(given.context), posixpath.normpath(given.dockerfile), args, given.target)


def _hostname(given: ComposeService, name: str, where: str, problems: TaskProblems) -> None:
    if given.hostname and name and given.hostname != name:
        problems.add(f"{where}.hostname: {given.hostname!r}", "a service is reached under its own name")


def _words(command: str | list[str] | None, where: str, problems: TaskProblems) -> list[str]:
    if not isinstance(command, str):
        return list(command or ())
    try:
        return shlex.split(command)
    except ValueError as error:
        problems.add(f"{where}.command: {command!r}", str(error))
        return []


def _health(given: ComposeHealthcheck) -> str:
    test = [given.test] if isinstance(given.test, str) else given.test
    if given.disable or not test or test[0] == "NONE":
        return ""
    if test[0] == "CMD":
        return shlex.join(test[1:])
    return test[1] if test[0] == "CMD-SHELL" and len(test) > 1 else test[0]


def _texts(values: Mapping[str, object], where: str, problems: TaskProblems) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if key.startswith(_GRADER):
            continue
        if value is None:
            problems.add(f"{where}: {key} has no value", "no value is taken from the host's environment")
        else:
            found[key] = scalar_text(value)
    return found


def _without_extensions(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in cast("dict[object, object]", value).items() if not str(key).startswith("x-")}
