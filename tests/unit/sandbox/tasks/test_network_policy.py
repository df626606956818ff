"""If these fail, tasks get a network that nobody granted, or lose one without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.tasks.dataset import Dataset
from sandbox.tasks.formats import terminal_bench
from sandbox.tasks.formats.folders import load_task_folder
from sandbox.tasks.network_policy import NetworkPolicy
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import OFFLINE, ONLINE, NetworkMode, TaskNetwork

PROXIED = TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("a.org",))
TASKS = tuple(Task(name, "", network=network) for name, network in (("a", OFFLINE), ("b", PROXIED), ("c", ONLINE)))


@pytest.mark.parametrize(
    ("policy", "granted", "notice"),
    [
        (NetworkPolicy.TASK, (OFFLINE, PROXIED, ONLINE), ""),
        (NetworkPolicy.NONE, (OFFLINE, TaskNetwork(allowed_hosts=("a.org",)), OFFLINE), "2 of 3 tasks"),
        (
            NetworkPolicy.PROXY,
            (OFFLINE, PROXIED, TaskNetwork(agent=NetworkMode.PROXY, verify=NetworkMode.PROXY)),
            "1 of 3 tasks",
        ),
        (
            NetworkPolicy.FULL,
            (ONLINE, TaskNetwork(agent=NetworkMode.FULL, verify=NetworkMode.FULL, allowed_hosts=("a.org",)), ONLINE),
            "",
        ),
    ],
)
def test_a_policy_grants_and_says_what_it_refuses(
    policy: NetworkPolicy, granted: tuple[TaskNetwork, ...], notice: str
) -> None:
    dataset = Dataset(TASKS, ()).with_network(policy, "--network")
    assert tuple(task.network for task in dataset.tasks) == granted
    assert [notice in each and "--network=task" in each for each in dataset.notices] == [True] * bool(notice)


@pytest.mark.parametrize(("line", "network"), [("", ONLINE), ("network_mode: none", OFFLINE)])
def test_a_terminal_bench_container_has_the_internet_unless_compose_says_otherwise(
    tmp_path: Path, line: str, network: TaskNetwork
) -> None:
    (tmp_path / "task.yaml").write_text("instruction: Do it.\n")
    (tmp_path / "run-tests.sh").write_text("pytest\n")
    (tmp_path / "docker-compose.yaml").write_text(f"services:\n  client:\n    image: debian\n    {line}\n")
    assert load_task_folder(terminal_bench.FORMAT, tmp_path).require_task().network == network
