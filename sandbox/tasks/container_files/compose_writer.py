"""Sections of a compose file, within the part that :mod:`sandbox.tasks.container_files.compose_schema` states.  Pure."""

from __future__ import annotations

from typing import Any, cast

from sandbox.tasks.container_files.build_context import BuildPlan
from sandbox.tasks.task import TaskService


def escape_variables(value: object) -> Any:
    """``value`` as a compose file must write it, so that no ``$`` in it is a variable."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [escape_variables(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: escape_variables(each) for key, each in cast("dict[object, object]", value).items()}
    return value


def limits_section(memory_mb: int, cpus: float) -> dict[str, object]:
    return {"mem_limit": f"{memory_mb}m", "cpus": cpus}


def build_section(plan: BuildPlan) -> dict[str, object]:
    section: dict[str, object] = {"context": plan.context, "dockerfile": plan.dockerfile}
    return (
        section
        | ({"args": escape_variables(plan.args)} if plan.args else {})
        | ({"target": plan.target} if plan.target else {})
    )


def service_section(service: TaskService, context: str) -> dict[str, object]:
    """A service as a compose file has it; its build context lies in the folder ``context``."""
    made: dict[str, object] = {}
    if service.build:
        build = service.build
        made["build"] = build_section(BuildPlan(context, build.dockerfile, build.args, build.target))
    else:
        made["image"] = escape_variables(service.image)
    if service.command:
        made["command"] = escape_variables(list(service.command))
    if service.env:
        made["environment"] = escape_variables(service.env)
    if service.healthcheck:
        made["healthcheck"] = {
            "test": ["CMD-SHELL", escape_variables(service.healthcheck)],
            "interval": "2s",
            "retries": 30,
        }
    return made | limits_section(service.memory_mb, service.cpus)
