"""If these fail, abandoned tests keep running where the agent can read them, or a sandbox that cannot start them wastes
their whole time limit."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Coroutine
from typing import Any

import pytest

from sandbox.errors import SandboxLost
from sandbox.grading.grader import grade_sandbox
from sandbox.session.child_process import run_child_process
from sandbox.session.files import read_tree
from sandbox.session.init_connection import wire
from sandbox.session.init_connection.init_messages import ChildExit
from sandbox.tasks.task import Task
from sandbox.toolchain.in_container.layout import CREATED_PATHS_FILE
from tests.support.fakes.fake_pid1 import FakePid1

LONG_S = 3600.0
TASK = Task("t", "", run_tests="#!/bin/sh\ntrue\n", tests={"expected": b"42"}, test_timeout_s=LONG_S)
TAKEN_BACK = [("I", wire.CHILD_SLOT), ("K", 0), ("F", CREATED_PATHS_FILE), ("W", "/tests/"), ("W", "/.sbx-tmp/")]


def child(pid_1: FakePid1) -> Coroutine[Any, Any, ChildExit | None]:
    return run_child_process(pid_1.session, ("/bin/true",), lambda _: True, env={}, limit_s=LONG_S)


async def cancelled_under_way(pid_1: FakePid1, work: Coroutine[Any, Any, object]) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await pid_1.grade_started.wait()
        task.cancel()
    assert task.cancelled()


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN, errno.EMFILE])
async def test_a_child_that_cannot_be_started_raises_its_errno_at_once(number: int):
    pid_1 = FakePid1()
    pid_1.child_errno = number
    for work in (child(pid_1), read_tree(pid_1.session, "/app")):
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
            await work
        assert caught.value.errno == number


async def test_tests_that_cannot_be_started_are_the_infrastructure_s_fault_at_once():
    pid_1 = FakePid1()
    pid_1.child_errno = errno.EAGAIN
    with pytest.raises(SandboxLost, match="could not be started"):
        await grade_sandbox(pid_1.session, TASK)


async def test_a_cancelled_caller_returns_only_after_its_child_is_dead():
    pid_1 = FakePid1()
    await cancelled_under_way(pid_1, child(pid_1))
    assert pid_1.received_frames[-1] == ("I", wire.CHILD_SLOT)
    assert not pid_1.grade_request


async def test_the_exit_of_an_earlier_child_is_ignored():
    pid_1 = FakePid1()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(child(pid_1))
        await pid_1.grade_started.wait()
        pid_1.deliver(ChildExit(pid_1.grade_request + 1000, 1, signalled=False))
        pid_1.end_grade(7)
    end = running.result()
    assert end is not None
    assert end.code == 7


async def test_after_a_cancelled_grading_no_test_runs_or_can_be_read():
    pid_1 = FakePid1()
    await cancelled_under_way(pid_1, grade_sandbox(pid_1.session, TASK))
    assert ("W", "/tests/expected") in pid_1.received_frames
    assert pid_1.received_frames[-5:] == TAKEN_BACK


async def test_after_a_grading_in_the_agents_container_no_test_can_be_read():
    pid_1 = FakePid1()
    async with asyncio.TaskGroup() as group:
        group.create_task(grade_sandbox(pid_1.session, TASK))
        await pid_1.grade_started.wait()
        pid_1.end_grade()
    assert pid_1.received_frames[-4:] == TAKEN_BACK[1:]
