"""Reads and writes values that several tables of a ``task.toml`` have.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.tasks.formats.harbor.schema import TEMPLATE, HarborCollect, HarborHealthcheck
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import TaskHealthcheck, TestsEnvironment
from sandbox.tasks.task_grading import CollectCommand


def read_healthcheck(given: HarborHealthcheck) -> TaskHealthcheck:
    return TaskHealthcheck(
        given.command,
        given.interval_sec,
        given.timeout_sec,
        given.start_period_sec,
        given.start_interval_sec,
        given.retries,
    )


def resolve_variables(where: str, given: Mapping[str, str], problems: TaskProblems) -> dict[str, str]:
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


def write_variables(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the key ``env``, unless Harbor would take a value for a template."""
    return {"env": dict(values)} if values and not any(map(TEMPLATE.fullmatch, values.values())) else {}


def write_tests_environment(own: TestsEnvironment) -> dict[str, Any]:
    """Return the key ``environment`` of a verifier, if it names an image."""
    return {"environment": {"docker_image": own.image, **write_variables(own.env)}} if own.image else {}


def write_healthcheck(check: TaskHealthcheck) -> dict[str, Any]:
    return {
        "command": check.command,
        "interval_sec": check.interval_s,
        "timeout_sec": check.timeout_s,
        "start_period_sec": check.start_period_s,
        "start_interval_sec": check.start_interval_s,
        "retries": check.retries,
    }


def read_collect(given: Iterable[HarborCollect]) -> tuple[CollectCommand, ...]:
    return tuple(CollectCommand(each.command, each.timeout_sec, each.user) for each in given)


def write_collect(commands: Iterable[CollectCommand]) -> dict[str, Any]:
    """Return the key ``collect``, if there are any."""
    tables = [
        {"command": each.command, "timeout_sec": each.timeout_s} | ({"user": each.user} if each.user else {})
        for each in commands
    ]
    return {"collect": tables} if tables else {}
