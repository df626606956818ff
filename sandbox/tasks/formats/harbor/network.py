"""Reads the networks of a Harbor task.  Pure.

``[environment]`` sets the network of agent and tests, ``[agent]`` and ``[verifier]`` override it for their phase.
Without a word a task has the internet.  The older ``allow_internet`` counts only where no newer key is given.
"""

from __future__ import annotations

from sandbox.tasks.formats.harbor.schema import (
    HarborEnvironment,
    HarborNetworkMode,
    HarborNetworkTable,
    HarborTask,
)
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import NetworkMode, TaskNetwork

MODES = {
    HarborNetworkMode.NO_NETWORK: NetworkMode.NONE,
    HarborNetworkMode.ALLOWLIST: NetworkMode.PROXY,
    HarborNetworkMode.PUBLIC: NetworkMode.FULL,
}


def read_network(described: HarborTask, problems: TaskProblems) -> TaskNetwork:
    """Return the network of each phase; contradictions are problems."""
    tables = {
        "environment": described.environment,
        "agent": described.agent,
        "verifier": described.verifier,
    }
    for name, table in tables.items():
        if table.allowed_hosts is not None and table.network_mode is not HarborNetworkMode.ALLOWLIST:
            problems.add(f"task.toml: {name}.allowed_hosts", 'it needs network_mode = "allowlist"')
    baseline = _baseline_mode(described.environment)
    hosts = tuple(described.environment.allowed_hosts or ())
    agent, agent_hosts = _phase(described.agent, baseline, hosts)
    verify, verify_hosts = _phase(described.verifier, baseline, hosts)
    listed = {each for mode, each in ((agent, agent_hosts), (verify, verify_hosts)) if mode is NetworkMode.PROXY}
    if len(listed) > 1:
        problems.add("task.toml: agent and verifier have different allowed_hosts", "one list serves both phases")
    return TaskNetwork(agent=agent, verify=verify, allowed_hosts=next(iter(listed), ()))


def _baseline_mode(environment: HarborEnvironment) -> NetworkMode:
    if environment.network_mode is not None:
        return MODES[environment.network_mode]
    return NetworkMode.NONE if environment.allow_internet is False else NetworkMode.FULL


def _phase(
    table: HarborNetworkTable, baseline: NetworkMode, hosts: tuple[str, ...]
) -> tuple[NetworkMode, tuple[str, ...]]:
    if table.network_mode is None:
        return baseline, hosts
    return MODES[table.network_mode], tuple(table.allowed_hosts or ())
