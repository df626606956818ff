"""If these fail, a hostile sandbox can hang the reader of its files, fill its memory, or give it something that is not
a file."""

from __future__ import annotations

import asyncio
import errno
import hashlib

import pytest

from sandbox.grading.containers.agent_processes import kill_agent_processes
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session import files
from sandbox.session.child_process import run_child_process
from sandbox.session.files import FileTooLarge, replace_path
from sandbox.session.init_connection.init_requests import FileFlag
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="files", instruction="")
S = 30.0


async def test_every_byte_goes_in_and_comes_out(pool: SandboxPool):
    data = hashlib.sha256(b"x").digest() * 40_000
    async with pool.acquire(TASK) as session:
        await session.write_files({"/deep/er/data": data, "/empty": b"", "/folder/": b""})
        assert await session.read_file("/deep/er/data") == data
        assert await session.read_file("/empty") == b""
        assert (await session.run("sha256sum /deep/er/data; test -d /folder && echo yes", S)).output == (
            f"{hashlib.sha256(data).hexdigest()}  /deep/er/data\nyes\n"
        )


@pytest.mark.parametrize(
    ("make", "path", "says"),
    [
        ("ln -s /etc/passwd /app/x", "/app/x", "Too many levels of symbolic links"),
        ("mkfifo /app/x", "/app/x", "Invalid argument"),
        ("mkdir /app/x", "/app/x", "Is a directory"),
        (":", "/dev/zero", "Invalid argument"),
        (":", "/app/none", "No such file or directory"),
        (":", "/proc/self/environ", "Operation not permitted"),
        (":", "/proc/kmsg", r"not permitted|denied"),
        (":", "/sys/kernel/mm/transparent_hugepage/enabled", r"not permitted|No such"),
        ("ln -s /proc/self /app/x", "/app/x/environ", "Operation not permitted"),
    ],
)
async def test_a_path_that_is_not_a_regular_file_is_refused_without_a_hang(
    pool: SandboxPool, make: str, path: str, says: str
):
    async with pool.acquire(TASK) as session:
        await session.run(make, S)
        with pytest.raises(OSError, match=says):
            await session.read_file(path)
        with pytest.raises(OSError, match=r"\w"):
            await session.write_files({path if path != "/app/none" else "/app": b"x"})
        assert (await session.run("echo alive", S)).output == "alive\n"


async def test_a_file_that_is_too_large_is_not_read(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("truncate -s 1G big; head -c 2000 /dev/zero > small", S)
        with pytest.raises(FileTooLarge):
            await session.read_file("/app/big")
        with pytest.raises(FileTooLarge):
            await session.read_file("/app/small", max_bytes=1999)
        assert len(await session.read_file("/app/small", max_bytes=2000)) == 2000


async def test_a_tree_comes_out_without_its_links_and_devices(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("mkdir -p t/a/b; echo 1 > t/a/b/f; ln -s /etc/passwd t/l; mkfifo t/p; echo 2 > t/..x", S)
        await session.run("printf '#!/bin/sh\\necho forged' > /bin/tar; export PATH=/app:$PATH", S)
        assert await session.read_tree("/app/t") == {"a/b/f": b"1\n", "..x": b"2\n"}
        with pytest.raises(OSError, match="No such file"):
            await session.read_tree("/app/none")
        with pytest.raises(OSError, match="cannot be archived"):
            await session.read_tree("/proc")


async def test_an_oversized_tree_is_refused_and_the_session_goes_on(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("mkdir t many; truncate -s 1G t/sparse; touch many/$(seq -s ' many/' 1 200)", S)
        with pytest.raises(FileTooLarge):
            await session.read_tree("/app/t", max_bytes=1 << 20, max_files=10)
        with pytest.raises(FileTooLarge):
            await session.read_tree("/app/many", max_files=10)
        assert len(await session.read_tree("/app/many")) == 200


async def test_only_one_child_runs_at_a_time_and_a_killed_child_is_reported_as_ended(pool: SandboxPool):
    """Otherwise a grading that starts while files are read would block their reader, or receive its output."""
    async with pool.acquire(TASK) as session, asyncio.TaskGroup() as group:
        sleeping = ("/.sbx/busybox", "sh", "-c", "echo here; exec sleep 1000")
        begun = asyncio.Event()

        def take(data: bytes) -> bool:
            begun.set()
            return True

        child = group.create_task(run_child_process(session, sleeping, take, env={}, limit_s=1000))
        await begun.wait()
        with pytest.raises(OSError, match="running its tests") as caught:
            await session.read_tree("/app")
        assert caught.value.errno == errno.EBUSY
        await kill_agent_processes(session)
        end = await child
        assert end is not None
        assert (end.code, end.signalled) == (137, True)
        assert await session.read_tree("/app") == {}


async def test_a_link_in_the_way_of_a_written_file_is_not_followed(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("echo keep > target; ln -s /app/target link", S)
        with pytest.raises(OSError, match="symbolic links"):
            await session.write_files({"/app/link": b"evil"})
        assert await session.read_file("/app/target") == b"keep\n"


async def test_a_folder_with_contents_is_moved_aside_even_if_it_belongs_to_the_image(pool: SandboxPool):
    """Otherwise an agent could make a grading take as long as it wants."""
    async with pool.acquire(TASK) as session:
        await session.run("mkdir -p t/a; echo 1 > t/a/f; mkdir u; echo 2 > u/f", S)
        await replace_path(session, "/app/t/")
        await replace_path(session, "/app/u", b"file")
        await replace_path(session, "/etc/skel/")
        seen = "ls -A t /etc/skel; cat u .sbx-aside-*/a/f .sbx-aside-*/f"
        assert (await session.run(seen, S)).output == "/etc/skel:\n\nt:\nfile1\n2\n"


async def test_a_folder_that_is_to_be_cleared_is_gone_with_all_it_holds(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("mkdir -p t/a/b/c; ln -s / t/a/l; (cd t; seq 6000 | xargs touch)", 10 * S)
        await replace_path(session, "/app/t/", flags=FileFlag.REPLACE | FileFlag.CLEAR)
        assert (await session.run("ls -A t; ls -A; ls -d /etc", S)).output == "t\n/etc\n"


async def test_a_blocked_read_of_a_folder_times_out_and_the_session_goes_on(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "READ_TREE_TIMEOUT_S", 1.0)
    async with pool.acquire(TASK) as session:
        await session.run("touch /app/x; cp /etc/passwd /p; rm /etc/passwd; mkfifo /etc/passwd", S)
        with pytest.raises(OSError, match="within 1 s") as caught:
            await session.read_tree("/app")
        assert caught.value.errno == errno.ETIME
        await session.run("mv -f /p /etc/passwd", S)
        assert await session.read_tree("/app") == {"x": b""}
