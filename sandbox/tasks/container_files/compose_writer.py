"""Writes the compose file of a task, within the part of Compose that ``compose_schema`` declares. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.default_limits import SERVICE_PIDS, SHM_MB
from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.container_files.compose_yaml import dump_compose_yaml
from sandbox.tasks.file_tree import TreeFile, as_tree_files
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ServiceCondition, TaskService

_CONDITIONS = {
    ServiceCondition.STARTED: "service_started",
    ServiceCondition.HEALTHY: "service_healthy",
    ServiceCondition.COMPLETED: "service_completed_successfully",
}


def write_compose(
    agent: str, section: dict[str, object], services: Sequence[TaskService], aliases: Sequence[str]
) -> dict[str, TreeFile]:
    """Write ``docker-compose.yaml`` and the services' build contexts, each in ``services/NAME``.

    ``agent`` is the name of the agent's service, ``section`` its content, and ``aliases`` its names.
    """
    files: dict[str, TreeFile] = {}
    awaited = {each.name: {"condition": _CONDITIONS[ServiceCondition.COMPLETED]} for each in services if each.ends}
    others = [each for each in aliases if each != agent]
    sections = {agent: section | ({"depends_on": awaited} if awaited else {}) | _aliases_section(others)}
    for service in services:
        folder = f"services/{service.name}"
        sections[service.name] = _service_section(service, f"./{folder}")
        if service.build:
            files |= as_tree_files(service.build.files, service.build.executable, under=folder)
    content: dict[str, object] = {"services": sections}
    if volumes := sorted({each.volume for service in services for each in service.volumes}):
        content["volumes"] = dict.fromkeys(volumes)
    return {**files, "docker-compose.yaml": TreeFile(dump_compose_yaml(content))}


def escape_variables(value: object) -> Any:
    """Double each ``$`` in the texts of ``value``, so that Compose reads no variable there."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [escape_variables(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: escape_variables(each) for key, each in cast("dict[object, object]", value).items()}
    return value


def limits_section(memory_mb: int, cpus: float) -> dict[str, object]:
    """Return the keys of a service that limit memory and CPUs."""
    return {"mem_limit": f"{memory_mb}m", "cpus": cpus}


def ulimits_section(container: Task | TaskService) -> dict[str, object]:
    """Return the keys of a service that limit each of its processes."""
    limits = {each.name: {"soft": each.soft, "hard": each.hard} for each in container.ulimits}
    return {"ulimits": limits} if limits else {}


def memory_folders_section(container: Task | TaskService) -> dict[str, object]:
    """Return the keys of a service about folders in memory."""
    shm: dict[str, object] = {"shm_size": f"{container.shm_mb}m"} if container.shm_mb != SHM_MB else {}
    return shm | ({"tmpfs": escape_variables(list(container.tmpfs))} if container.tmpfs else {})


def command_section(container: Task | TaskService) -> dict[str, object]:
    """Return the keys of a service about what it starts."""
    entrypoint = {} if container.entrypoint is None else {"entrypoint": escape_variables(list(container.entrypoint))}
    return entrypoint | ({"command": escape_variables(list(container.command))} if container.command else {})


def shared_folders(container: Task | TaskService) -> list[object]:
    """Return the ``volumes`` of a service that others have too."""
    return [
        {"type": "volume", "source": each.volume, "target": escape_variables(each.target), "read_only": each.read_only}
        for each in container.volumes
    ]


def build_section(plan: BuildPlan) -> dict[str, object]:
    """Return the ``build`` section of a service."""
    section: dict[str, object] = {"context": plan.context, "dockerfile": plan.dockerfile}
    return (
        section
        | ({"args": escape_variables(plan.args)} if plan.args else {})
        | ({"target": plan.target} if plan.target else {})
    )


def _service_section(service: TaskService, context: str) -> dict[str, object]:
    """Return a service's section; ``context`` is the folder of its build context."""
    made: dict[str, object] = {}
    if service.build:
        build = service.build
        made["build"] = build_section(BuildPlan(context, build.dockerfile, build.args, build.target))
    else:
        made["image"] = escape_variables(service.image)
    made |= command_section(service)
    if service.hostname:
        made["hostname"] = service.hostname
    if service.user:
        made["user"] = escape_variables(service.user)
    if service.workdir:
        made["working_dir"] = escape_variables(service.workdir)
    if service.env:
        made["environment"] = escape_variables(service.env)
    made |= _check_section(service.healthcheck)
    if service.volumes:
        made["volumes"] = shared_folders(service)
    if service.depends_on:
        made["depends_on"] = {
            name: {"condition": _CONDITIONS[condition]} for name, condition in service.depends_on.items()
        }
    if service.pids != SERVICE_PIDS:
        made["pids_limit"] = service.pids
    if service.capabilities != BASE_CAPABILITIES:
        made |= {"cap_drop": ["ALL"], "cap_add": list(service.capabilities)}
    made |= {name: True for name in ("read_only", "stdin_open", "tty") if getattr(service, name)}
    if service.restart:
        made["restart"] = service.restart
    made |= _aliases_section(service.aliases)
    limits = limits_section(service.memory_mb, service.cpus) | ulimits_section(service)
    return made | limits | memory_folders_section(service)


def _aliases_section(aliases: Sequence[str]) -> dict[str, object]:
    return {"networks": {"default": {"aliases": list(aliases)}}} if aliases else {}


def _check_section(healthcheck: str | None) -> dict[str, object]:
    if healthcheck is None:
        return {"healthcheck": {"disable": True}}
    check = {"test": ["CMD-SHELL", escape_variables(healthcheck)], "interval": "2s", "retries": 30}
    return {"healthcheck": check} if healthcheck else {}
