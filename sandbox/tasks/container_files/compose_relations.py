"""Reads what the services of a compose file say of each other: their names, what each waits for, their networks.  Pure.

All services of a task are on one private network. A link's name is one of the network's there, so it must lead to one
service only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from sandbox.tasks.container_files.compose_schema import ComposeFile, ComposeService
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import ServiceCondition

_DEFAULT = "default"
"""The network of services that name none."""
_CONDITIONS = {
    "service_started": ServiceCondition.STARTED,
    "service_healthy": ServiceCondition.HEALTHY,
    "service_completed_successfully": ServiceCondition.COMPLETED,
}


@dataclass(slots=True)
class ServiceRelations:
    """The relations of one service say by which names others reach it, and which it waits for."""

    aliases: dict[str, None] = field(default_factory=dict[str, None])
    """Names by which it is reached beside its own, in their order."""
    depends_on: dict[str, ServiceCondition] = field(default_factory=dict[str, ServiceCondition])
    ends: bool = False
    """Another service, or the agent's, waits for its end."""


def read_relations(
    services: Mapping[str, ComposeService],
    started: Collection[str],
    main: str,
    where: str,
    problems: TaskProblems,
) -> dict[str, ServiceRelations]:
    """Return the relations of each of ``services`` and of ``main``, the agent's.

    ``started`` are the names of all services that Compose would start, ``where`` is the file.
    """
    found = {key: ServiceRelations() for key in {main: None, **services}}
    links: dict[str, set[str]] = {}
    for key, service in services.items():
        found[key].aliases |= dict.fromkeys(_own_names(service))
        for other, condition in _dependencies(service, started, f"{where}: services.{key}", problems):
            if other == main:
                said = "depends_on" if main in service.depends_on else "links"
                _check_dependency_on_agent(condition, f"{where}: services.{key}.{said}: {main}", problems)
                continue
            if other in found:
                found[other].ends |= condition is ServiceCondition.COMPLETED
            if key != main:  # it starts after all others
                found[key].depends_on[other] = condition
        for other, alias in _links(service):
            links.setdefault(alias, set()).add(other)
    for alias, targets in links.items():
        others = {key for key, each in found.items() if alias == key or alias in each.aliases}
        if len(targets | others) > 1:
            problems.add(
                f"{where}: the link {alias!r} leads to {', '.join(sorted(targets))}",
                "others have that name on the network: choose another",
            )
        for target in targets & found.keys():
            found[target].aliases[alias] = None
    for key, each in found.items():
        each.aliases.pop(key, None)
    return found


def check_networks(
    services: Mapping[str, ComposeService], main: str, file: ComposeFile, where: str, problems: TaskProblems
) -> None:
    """Add a problem for networks that the file does not have, and for services that are to be out of reach."""
    joined = {main: {_DEFAULT}} | {key: {*service.networks} or {_DEFAULT} for key, service in services.items()}
    for key, names in joined.items():
        for name in sorted(names - file.networks.keys() - {_DEFAULT}):
            problems.add(f"{where}: services.{key}.networks: {name}", "the file has no such network")
    for (one, its), (other, others) in combinations(joined.items(), 2):
        if its.isdisjoint(others):
            problems.add(
                f"{where}: services {one} and {other} have no network in common",
                "here all services of a task share one: put them on one",
            )


def is_internal(service: ComposeService, file: ComposeFile) -> bool:
    """Return whether no network of a service leads outside."""
    networks = (file.networks.get(name) for name in {*service.networks} or {_DEFAULT})
    return all(each is not None and each.internal for each in networks)


def _own_names(service: ComposeService) -> Iterator[str]:
    if service.container_name:
        yield service.container_name
    for network in service.networks.values():
        yield from network.aliases if network else ()


def _links(service: ComposeService) -> Iterator[tuple[str, str]]:
    for each in service.links:
        other, _, alias = each.partition(":")
        yield other, alias or other


def _dependencies(
    service: ComposeService, started: Collection[str], where: str, problems: TaskProblems
) -> Iterator[tuple[str, ServiceCondition]]:
    """Yield the services that one waits for; a link is such a one too."""
    for other in dict.fromkeys(other for other, _ in _links(service)):
        if other not in started:
            problems.add(f"{where}.links: {other}", "Compose starts no such service")
        elif other not in service.depends_on:
            yield other, ServiceCondition.STARTED
    for other, given in service.depends_on.items():
        if other in started:
            yield other, _CONDITIONS[given.condition]
        elif given.required:
            problems.add(f"{where}.depends_on: {other}", "Compose starts no such service")


def _check_dependency_on_agent(condition: ServiceCondition, where: str, problems: TaskProblems) -> None:
    if condition is ServiceCondition.STARTED:
        problems.remark(f"{where} is not followed: the agent's container starts after all services")
    else:
        problems.add(f"{where}.condition", "the agent's container starts after all services: remove it")
