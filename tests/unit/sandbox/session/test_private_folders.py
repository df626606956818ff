"""If these fail, folders stay private after their tests, or an agent is blamed for what its machine cannot do."""

from __future__ import annotations

import asyncio
import errno

import pytest

from protocol.errors import UserError
from sandbox.errors import SandboxLost
from sandbox.session.private_folders import private_folders
from tests.support.fakes.fake_pid1 import FakePid1

FOLDERS = {"/tests": 0o700, "/logs/verifier": 0o700}


def requests(pid_1: FakePid1) -> int:
    return sum(kind == "M" for kind, _ in pid_1.received_frames)


async def test_folders_are_private_until_the_block_ends_however_it_ends():
    pid_1 = FakePid1()
    async with private_folders(pid_1.session, FOLDERS):
        assert requests(pid_1) == 1
    with pytest.raises(KeyError):
        async with private_folders(pid_1.session, FOLDERS):
            raise KeyError
    assert requests(pid_1) == 4


async def test_a_cancelled_request_is_undone():
    pid_1 = FakePid1()

    async def hold() -> None:
        async with private_folders(pid_1.session, FOLDERS):
            pytest.fail("it was cancelled before")

    task = asyncio.create_task(hold())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert requests(pid_1) == 2


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EPERM, UserError),
        (errno.EACCES, UserError),
        (errno.EALREADY, SandboxLost),
        (errno.EBUSY, OSError),
        (errno.ENOSPC, OSError),
    ],
)
async def test_the_errno_decides_the_type_of_error(number: int, error: type[Exception]):
    pid_1 = FakePid1()
    pid_1.mount_errno = number
    with pytest.raises(error):
        async with private_folders(pid_1.session, FOLDERS):
            pytest.fail("there are no private folders")
    assert requests(pid_1) == 2
