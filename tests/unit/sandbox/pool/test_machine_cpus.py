"""If these fail, a task that needs a larger machine is taken for a failure of the infrastructure, and tried again."""

from __future__ import annotations

import pytest

from sandbox.errors import TaskFault
from sandbox.pool.machine_cpus import check_cpus
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskService, TestsEnvironment
from sandbox.tasks.task_grading import GradingLevel

CLEAN = GradingLevel.ARTIFACTS


@pytest.mark.parametrize(
    "task",
    [
        Task("big", "a", cpus=16),
        Task("big", "a", services=(TaskService("db", "db:1", cpus=16),)),
        Task("big", "a", grading=CLEAN, tests_environment=TestsEnvironment(cpus=16)),
    ],
    ids=["agent", "service", "tests"],
)
def test_a_task_that_asks_for_more_cpus_than_there_are_is_at_fault(task: Task) -> None:
    with pytest.raises(TaskFault, match="task big asks for 16 CPUs, and this machine has 2: lower"):
        check_cpus(task, 2)
    check_cpus(task, 16)


def test_tests_without_a_number_of_cpus_have_the_task_s() -> None:
    check_cpus(Task("small", "a", cpus=2, grading=CLEAN, tests_environment=TestsEnvironment()), 2)
