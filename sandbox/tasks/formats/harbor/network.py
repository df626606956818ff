"""Reads the networks of a Harbor task.  Pure.

``[environment]`` sets the network of agent and tests, or ``[verifier.environment]`` that of tests in a container of
their own; ``[agent]`` and ``[verifier]`` override it for their phase.
Without a word a task has the internet.  The older ``allow_internet`` counts only where no newer key is given.
"""

from __future__ import annotations

from sandbox.tasks.formats.harbor.schema import (
    HarborEnvironment,
    HarborNetworkMode,
    HarborNetworkTable,
    HarborStep,
    HarborTask,
)
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

_Phase = tuple[NetworkMode, tuple[str, ...]]
"""Mode and allowed hosts."""
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
    if described.verifier.environment is not None:
        tables["verifier.environment"] = described.verifier.environment
    for step in described.steps:
        tables |= {f"steps.{step.name}.agent": step.agent, f"steps.{step.name}.verifier": step.verifier}
        if step.verifier.environment is not None:
            tables[f"steps.{step.name}.verifier.environment"] = step.verifier.environment
    for name, table in tables.items():
        if table.allowed_hosts is not None and table.network_mode is not HarborNetworkMode.ALLOWLIST:
            problems.add(f"task.toml: {name}.allowed_hosts", 'it needs network_mode = "allowlist"')
    (agent, agent_hosts), (verify, verify_hosts) = network_of_step(described, HarborStep(name="all"))
    listed = {each for mode, each in ((agent, agent_hosts), (verify, verify_hosts)) if mode is NetworkMode.PROXY}
    if len(listed) > 1:
        problems.add("task.toml: agent and verifier have different allowed_hosts", "one list serves both phases")
    return TaskNetwork(agent=agent, verify=verify, allowed_hosts=next(iter(listed), ()))


def network_of_step(described: HarborTask, step: HarborStep) -> tuple[_Phase, _Phase]:
    """Return mode and hosts of a step's agent and of its tests: the step's own, or else the task's."""
    agent = step.agent if step.agent.network_mode else described.agent
    verifier = step.verifier if step.verifier.network_mode else described.verifier
    of_tests = step.verifier.environment or described.verifier.environment or described.environment
    return _phase(agent, described.environment), _phase(verifier, of_tests)


def _baseline_mode(environment: HarborEnvironment) -> NetworkMode:
    if environment.network_mode is not None:
        return MODES[environment.network_mode]
    return NetworkMode.NONE if environment.allow_internet is False else NetworkMode.FULL


def _phase(table: HarborNetworkTable, baseline: HarborEnvironment) -> _Phase:
    if table.network_mode is None:
        return _baseline_mode(baseline), tuple(baseline.allowed_hosts or ())
    return MODES[table.network_mode], tuple(table.allowed_hosts or ())
