"""Reads a compose file into the parts of a task. ``compose_schema`` declares what becomes of each key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

from sandbox.tasks.container_files.compose_relations import check_networks, is_internal, read_relations
from sandbox.tasks.container_files.compose_schema import (
    ComposeAgentService,
    ComposeFile,
    ComposeService,
    ComposeSideService,
)
from sandbox.tasks.container_files.compose_services import ComposeFacts, read_agent_service, read_side_service
from sandbox.tasks.container_files.compose_volumes import (
    check_named_volumes,
    find_shared_volumes,
    remark_separate_copies,
)
from sandbox.tasks.container_files.compose_yaml import parse_compose_yaml
from sandbox.tasks.container_files.env_files import read_own_env_file
from sandbox.tasks.container_files.variables import substitute_variables
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import TaskService
from sandbox.tasks.yaml_text import YamlError

_UNKNOWN = "Compose has no such key"
_BY_HOST = "it only matters where a host is short of it"
_IMAGES = "images are those of this machine"
_WINDOWS = "only Windows has it"
REMARKS = {
    "ports": "nothing outside reaches services, and they reach each other",
    "platform": _IMAGES,
    "build.platforms": _IMAGES,
    "build.shm_size": "a build has the engine's, and fails if it needs more",
    "build.ulimits": "a build has the engine's, and fails if it needs others",
    "blkio_config": _BY_HOST,
    "cpu_shares": _BY_HOST,
    "mem_reservation": _BY_HOST,
    "deploy.resources.reservations.cpus": _BY_HOST,
    "deploy.resources.reservations.memory": _BY_HOST,
    "cpu_count": _WINDOWS,
    "cpu_percent": _WINDOWS,
    "mem_swappiness": "a sandbox has no swap",
    "memswap_limit": "a sandbox has no swap",
    "oom_kill_disable": "what exceeds its memory is ended",
    "oom_score_adj": "memory is each container's own",
}
"""Why a key of a service is not followed although the task is usable."""


def read_compose_file(
    tree: FileTree,
    names: Sequence[str],
    main: str,
    variables: Mapping[str, str],
    problems: TaskProblems,
    *,
    is_merged: bool = False,
) -> ComposeFacts:
    """Read the compose file of a task: the first of ``names`` that is in the folder ``tree``.

    ``main`` is the agent's service.  ``is_merged``: the harness merges the file with its own, which has that service;
    otherwise a file with one service means that one, whatever its name.  Returns facts that say nothing when there is
    no file, or when it is invalid: then with problems.
    """
    name = next((each for each in names if each in tree.files), "")
    file = _read_content(tree, name, variables, problems) if name else None
    if file is None:
        return ComposeFacts()
    if not is_merged:
        main = _agents_service(file, main, name, problems)
    return _read_services(file, main, name, tree, problems)


def _read_content(
    tree: FileTree, name: str, variables: Mapping[str, str], problems: TaskProblems
) -> ComposeFile | None:
    text = problems.read_text(tree, name)
    try:
        raw: object = parse_compose_yaml(text)
    except YamlError as error:
        problems.add(f"{name} is not readable YAML", str(error))
        return None
    variables = {"COMPOSE_PROJECT_NAME": "task", **read_own_env_file(tree, text, problems), **variables}
    content = _without_extensions(substitute_variables(raw, variables, name, problems))
    return problems.validate(name, content, ComposeFile, unknown=_UNKNOWN)


def _read_services(file: ComposeFile, main: str, name: str, tree: FileTree, problems: TaskProblems) -> ComposeFacts:
    services: dict[str, ComposeService] = {}
    started = {main, *file.services}
    for key, given in file.services.items():
        where = f"{name}: services.{key}"
        kind = ComposeAgentService if key == main else ComposeSideService
        said = {name: value for name, value in given.items() if value is not None}  # as in Compose
        service = problems.validate(where, _without_extensions(said), kind, unknown=_UNKNOWN)
        if service is None:
            continue
        if service.profiles and key != main:
            problems.remark(f"{where} is left out: it is started only with a profile ({', '.join(service.profiles)})")
            started.remove(key)
            continue
        _remark(service, where, problems)
        services[key] = service
    relations = read_relations(services, started, main, name, problems)
    check_networks(services, main, file, name, problems)
    check_named_volumes(services, file, name, problems)
    shared = find_shared_volumes(services.values(), tree)
    remark_separate_copies(services, tree, name, problems)
    accompanied = len(started) > 1
    agent = ComposeFacts()
    sides: list[TaskService] = []
    for key, service in services.items():
        where = f"{name}: services.{key}"
        if isinstance(service, ComposeAgentService):
            agent = read_agent_service(
                service, tree, where, accompanied, problems, shared=shared, internal=is_internal(service, file)
            )
        elif isinstance(service, ComposeSideService):
            sides += read_side_service(key, service, tree, where, problems, shared=shared, relations=relations[key])
    names = (main, *relations[main].aliases) if accompanied else ()
    return replace(agent, aliases=names, services=tuple(sides))


def _agents_service(file: ComposeFile, main: str, name: str, problems: TaskProblems) -> str:
    if main in file.services:
        return main
    if len(file.services) != 1:
        problems.add(f"{name} has services {', '.join(sorted(file.services)) or 'none'}", f"{main!r} must be one")
        return main
    (only,) = file.services
    problems.remark(f"{name}: its only service is taken for the agent's, which is named {main!r} in Terminal-Bench")
    return only


def _remark(given: ComposeService, where: str, problems: TaskProblems) -> None:
    for key, why in REMARKS.items():
        if reduce(lambda section, name: getattr(section, name, None), key.split("."), cast("object", given)):
            problems.remark(f"{where}.{key} is not followed: {why}")


def _without_extensions(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in cast("dict[object, object]", value).items() if not str(key).startswith("x-")}
