"""If these fail, a task for a larger machine is tried again as a failure of the infrastructure, or refused in vain."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.docker.engine import MachineSize
from sandbox.errors import TaskFault
from sandbox.images.build_limits import BuildLimits
from sandbox.pool.machine_size import check_machine
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService, TestsEnvironment
from sandbox.tasks.task_grading import GradingLevel

CLEAN = GradingLevel.ARTIFACTS
SMALL, LARGE = MachineSize(2, 4000), MachineSize(16, 64_000)


def of_agent(size: Any) -> Task:
    return Task("big", "a", **size)


def of_service(size: Any) -> Task:
    return Task("big", "a", services=(TaskService("db", "db:1", **size),))


def of_tests(size: Any) -> Task:
    return Task("big", "a", grading=CLEAN, tests_environment=TestsEnvironment(**size))


@pytest.mark.parametrize("task", [of_agent, of_service, of_tests])
def test_a_task_that_asks_for_more_cpus_than_there_are_is_at_fault(task: Any) -> None:
    with pytest.raises(TaskFault, match="task big asks for 16 CPUs, and this machine has 2: lower"):
        check_machine(task({"cpus": 16}), SMALL)
    check_machine(task({"cpus": 16}), LARGE)


@pytest.mark.parametrize("task", [of_agent, of_service, of_tests])
def test_a_task_may_ask_for_more_memory_than_there_is(task: Any) -> None:
    check_machine(task({"memory_mb": 64_000}), SMALL)


def test_tests_without_a_size_have_the_task_s() -> None:
    task = Task("small", "a", cpus=2, memory_mb=4000, grading=CLEAN, tests_environment=TestsEnvironment())
    check_machine(task, SMALL)


def test_a_build_has_at_most_what_the_machine_has() -> None:
    """An image may be made for a larger machine."""
    task = Task("big", "a", cpus=16, memory_mb=64_000)
    assert BuildLimits.for_task(task, LARGE) == (64_000, 16)
    assert BuildLimits.for_task(task, SMALL) == (4000, 2)
    assert BuildLimits.for_task(Task("small", "a"), LARGE) == (4096, 2)
