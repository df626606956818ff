"""The network that tasks get in a run, whatever they ask for.  Pure.

Most published tasks may use the internet: Terminal-Bench's containers always had a network, and Harbor's have one
unless a task refuses it.  Most do not need it here, because the toolchain brings what their tests install.  An agent in
training should not have it without being asked for: it reaches hosts that nobody meant, its rewards come to depend on
them, and solutions are published there.  So the default is none, and a run says how many tasks wanted more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode


class NetworkPolicy(StrEnum):
    """The network that agents and tests get.  An image's build has the network that its task asks for in any case."""

    TASK = "task"
    """Each phase has the network that the task asks for."""
    NONE = "none"
    """No network; a task's services stay reachable."""
    PROXY = "proxy"
    """The egress proxy, for tasks that want a network: with a task's allowed hosts if it names some."""
    FULL = "full"
    """The internet, for every task."""


DEFAULT_NETWORK_POLICY = NetworkPolicy.NONE
_ORDER = (NetworkMode.NONE, NetworkMode.PROXY, NetworkMode.FULL)
"""Each reaches more than the one before."""


def apply_network_policy(task: Task, policy: NetworkPolicy) -> Task:
    """Return ``task`` with the network that ``policy`` grants."""
    own = task.network
    agent, verify = (_grant(wish, policy) for wish in (own.agent, own.verify))
    return (
        task
        if (agent, verify) == (own.agent, own.verify)
        else replace(task, network=replace(own, agent=agent, verify=verify))
    )


def _grant(wish: NetworkMode, policy: NetworkPolicy) -> NetworkMode:
    match policy:
        case NetworkPolicy.TASK:
            return wish
        case NetworkPolicy.PROXY:
            return NetworkMode.NONE if wish is NetworkMode.NONE else NetworkMode.PROXY
        case _:
            return NetworkMode(policy.value)


def grant_networks(tasks: Sequence[Task], policy: NetworkPolicy, option: str) -> tuple[tuple[Task, ...], str]:
    """Return ``tasks`` with the networks that ``policy`` grants, and one line on how many get less than they ask for;
    an empty line if none does.

    ``option``: how the user sets the policy, without its value."""
    granted = tuple(apply_network_policy(task, policy) for task in tasks)
    short = sum(map(_falls_short, tasks, granted))
    if not short:
        return granted, ""
    gets = "none" if policy is NetworkPolicy.NONE else "the proxy"
    return granted, (
        f"{short} of {len(tasks)} {'task asks' if len(tasks) == 1 else 'tasks ask'} for more network than "
        f"{'it gets' if short == 1 else 'they get'}, which is {gets}: {option}=task gives it"
    )


def lacks_network(task: Task) -> bool:
    """Return whether the agent of ``task`` has no network although the task names hosts that it is to reach."""
    return task.network.agent is NetworkMode.NONE and bool(task.network.allowed_hosts)


def _falls_short(asked: Task, granted: Task) -> bool:
    wanted, got = asked.network, granted.network
    pairs = ((wanted.agent, got.agent), (wanted.verify, got.verify))
    return any(_ORDER.index(given) < _ORDER.index(wish) for wish, given in pairs)
