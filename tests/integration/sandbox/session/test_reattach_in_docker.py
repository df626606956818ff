"""If these fail, a restart of the server or of dockerd costs every live sandbox, or gives a new client messages of the
old one."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncGenerator, Awaitable
from functools import partial

import pytest
import pytest_asyncio

from protocol.errors import UserError
from sandbox.docker import daemon
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.docker.leaks import inventory_where, wait_for_leaks
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.grading.containers.container_calls import container_pids
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.images.store import open_ledger
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.providers.interface import LocalProvider, open_sandbox
from sandbox.session.init_connection import init_requests
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.session.shell import SandboxShell
from sandbox.session.snapshot import snapshot
from sandbox.stress.private_engine import PrivateEngine, why_unavailable
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TaskService
from sandbox.tasks.task_grading import GradingLevel

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="again", instruction="")
S = 60.0
GRADED = "echo short test summary info; n=0; while [ $n -lt 3000 ]; do n=$((n+1)); echo PASSED t$n; done\n"


async def test_a_new_stream_finds_the_same_shells_and_running_commands(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("cd /usr; X=kept; yes | head -c 3000000 & mkfifo /tmp/go", S)
        background, terminal = session.open_shell(), await session.open_terminal(("cat",))
        background.start("touch /tmp/begun; read < /tmp/go; echo heard; (exit 7)")
        await session.run("until [ -e /tmp/begun ]; do sleep 0.01; done", S)  # else it may go with the stream
        session.send(init_requests.write_frame(1, "/tmp/half", b"x" * 1000)[:500])  # a frame that is cut in two
        session.close_stream()
        await session.stream_ended()
        with pytest.raises(SandboxLost):
            await session.run("true", S)
        await session.reattach()
        assert (await session.run("wait; echo $X; pwd; ls /tmp/half 2>&1 | wc -l; echo > /tmp/go", S)).output.endswith(
            "kept\n/usr\n1\n"
        )
        assert await background.wait_until_ended(S)
        assert background.finish().exit_code == 7
        await terminal.send("still here\n")
        assert await terminal.wait_for_screen(lambda screen: "still here" in screen.text, S)
        assert session.remaining_s > 0


async def test_a_command_that_ended_while_disconnected_is_reported_and_not_run_again(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        background = session.open_shell()
        background.start("mkfifo /tmp/go; read < /tmp/go; echo x >> /tmp/runs; (exit 7)")
        await session.run("until test -p /tmp/go; do :; done", S)
        session.close_stream()
        await session.stream_ended()
        end_it = ("exec", session.container, "sh", "-c", "echo > /tmp/go; until test -s /tmp/runs; do :; done")
        await asyncio.to_thread(daemon.run_program, ("docker", "--host", session.engine.url, *end_it), "let it end")
        await session.reattach()
        assert await background.wait_until_ended(S)
        assert background.finish().exit_code == 7
        assert (await session.run("cat /tmp/runs", S)).output == "x\n"


async def test_another_client_takes_over_the_main_shell_and_kills_unclaimed_commands(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("cd /usr; X=kept", S)
        extra = session.open_shell()
        extra.start("sleep 5001")
        await session.run("until pgrep -x sleep; do :; done", S)
        session.close_stream()
        await session.stream_ended()
        adopted = await SandboxSession.adopt(session.engine, session.container, "/app")
        try:
            done = await adopted.run("echo $X; pwd; while pgrep -x sleep; do :; done", S)
            assert done.output.startswith("kept\n/usr\n")
            assert (await adopted.open_shell().run("pwd", S)).output == "/app\n"
        finally:
            await adopted.close()  # the session has lost its stream, and would leave the container to its deadline


async def test_an_adopted_session_keeps_its_image_from_being_evicted(pool: SandboxPool):
    build = ImageBuild({"Dockerfile": f"FROM {pool.host.base_image}\nLABEL adopted={os.getpid()}\n".encode()})
    task = dataclasses.replace(TASK, build=build)
    async with pool.images.reserve(task) as image:
        labels = {POOL_LABEL: pool.settings.name}
        spec = ContainerSpec(image, pool.host.toolchain, labels)
        left = await SandboxSession.start(pool.engine, spec, "/app", SessionLimits(60, 60))
        left.close_stream()
    adopted = await pool.adopt(left.container, task)
    ledger = await open_ledger(pool.engine, pool.host.home)
    with ledger.lock_exclusively(image) as nobody_holds_it:
        assert not nobody_holds_it
    assert (await adopted.run("echo again", S)).output == "again\n"
    await pool.close(adopted)
    with ledger.lock_exclusively(image) as nobody_holds_it:
        assert nobody_holds_it


async def test_a_container_that_is_gone_cannot_be_found_again(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.engine.remove(session.container)
        await session.stream_ended()
        with pytest.raises(SandboxLost):
            await session.reattach()
        with pytest.raises(SandboxLost):
            await SandboxSession.adopt(session.engine, "0" * 64)


async def test_a_fork_has_the_files_and_neither_touches_the_other(pool: SandboxPool, engine: DockerEngine):
    before = await engine.inventory()
    live = pool.statistics().live
    async with open_sandbox(LocalProvider(pool), TASK) as sandbox:
        await sandbox.run("cd /srv; echo one > f", S)
        copy = await sandbox.fork()
        assert pool.statistics().live == live + 2
        assert (await copy.run("pwd; cat f; echo two > f", S)).output == "/srv\none\n"
        assert (await sandbox.run("cat f", S)).output == "one\n"
        await copy.close()
        with pytest.raises(SandboxLost):
            await copy.run("true", S)
    pool_name = pool.settings.name
    others = partial(inventory_where, engine, lambda labels: labels.get(POOL_LABEL) != pool_name)
    assert not (await wait_for_leaks(engine, before, list_others=others)), "a copy, or its image, was left"


async def test_a_failed_fork_takes_no_slot(pool: SandboxPool):
    live = pool.statistics().live
    async with pool.acquire(TASK) as session:
        await session.run("for i in 1 2 3; do truncate -s 1G /hole$i; done", S)
        with pytest.raises(SandboxLost, match="disk limit"):
            await pool.fork(session)
        await session.run("rm /hole*; rm /etc/passwd; mkfifo /etc/passwd", S)
        with pytest.raises(SandboxStartError, match="/etc/passwd is not a regular file"):
            await pool.fork(session)
        session.spec = dataclasses.replace(session.spec, network="longshore-x")
        with pytest.raises(UserError, match="open another one"):
            await pool.fork(session)
        assert pool.statistics().live == live + 1


async def test_an_image_of_a_sandbox_is_removed_also_when_its_user_is_cancelled(pool: SandboxPool):
    images: list[str] = []
    async with pool.acquire(TASK) as session:
        copied = asyncio.Event()

        async def use() -> None:
            async with snapshot(session) as image:
                images.append(image)
                copied.set()
                await asyncio.sleep(600)

        async with asyncio.TaskGroup() as group:
            using = group.create_task(use())
            await copied.wait()
            using.cancel()
        assert not daemon.has_image(session.engine.url, images[0])


@pytest_asyncio.fixture(loop_scope="session")
async def own_engine(docker_engine: SandboxHost) -> AsyncGenerator[PrivateEngine]:
    if why := why_unavailable(docker_engine.docker_url):
        pytest.skip(why)
    async with PrivateEngine.running(docker_engine) as engine:
        yield engine


@pytest.mark.chaos
async def test_after_a_kill_of_dockerd_a_new_stream_finds_the_same_shell(own_engine: PrivateEngine):
    spec = ContainerSpec(
        own_engine.host.base_image, own_engine.host.toolchain, {POOL_LABEL: "again"}, auto_remove=False
    )
    async with DockerEngine(own_engine.host.docker_url) as engine:
        session = await SandboxSession.start(engine, spec, "/app", SessionLimits(300, 300))
        try:
            await session.run("cd /usr; X=kept; f() { echo f:$1; }", S)
            background = session.open_shell()
            background.start("mkfifo /tmp/go; read < /tmp/go; echo x >> /tmp/runs; (exit 7)")
            await session.run("until test -p /tmp/go; do :; done", S)
            await own_engine.kill()
            await session.stream_ended()
            with pytest.raises(SandboxLost):
                await session.run("true", S)
            await own_engine.start()
            await session.reattach()
            assert (await session.run("echo $X; f 1; pwd; echo > /tmp/go", S)).output == "kept\nf:1\n/usr\n"
            assert await background.wait_until_ended(S)
            assert background.finish().exit_code == 7
            assert (await session.run("cat /tmp/runs", S)).output == "x\n"
            assert await engine.has_live_restore()
        finally:
            await session.close()
        assert session.container not in (await engine.inventory()).containers


@pytest.mark.chaos
async def test_sessions_of_a_pool_survive_a_kill_of_dockerd(own_engine: PrivateEngine):
    """Each waiter gets its answer, complete and once; it only notices the duration of the restart."""
    host = own_engine.host
    settings = PoolSettings("again", "test", 2, drain_s=20)
    web = TaskService("web", command=("/.sbx/busybox", "httpd", "-f", "-p", "8000", "-h", "/etc"))
    task = Task("again", "", services=(web,), run_tests="#!/bin/sh\nwhile [ ! -e /app/go ]; do :; done\n" + GRADED)
    counted = "for n in $(seq 1 20000); do echo $n; [ $n != 3000 ] || until test -e /app/go; do sleep 0.1; done; done"
    async with DockerEngine(host.docker_url) as engine:
        before = await engine.inventory()
        async with SandboxPool(settings, host) as pool, asyncio.TaskGroup() as group:
            session, other = await pool.open(task), await pool.open(dataclasses.replace(task, services=()))
            await session.run("X=kept", S)
            half, live = asyncio.Event(), list[str]()

            def saw(text: str) -> None:
                live.append(text)
                if "3000" in text:
                    half.set()

            counting = group.create_task(session.run(f"echo $X; {counted}; (exit 7)", 10 * S, saw))
            talking = session.open_shell()
            grading = group.create_task(grade_sandbox(other, task, 10 * S))
            await half.wait()
            await own_engine.kill()
            nonces = group.create_task(_nonces(talking))
            writing = group.create_task(session.write_files({"/app/big": bytes(range(256)) * 4096}))
            await own_engine.start()
            await writing
            await session.write_files({"/app/go": b""})
            await other.write_files({"/app/go": b""})
            done = await counting
            assert done.output == "kept\n" + "".join(f"{n}\n" for n in range(1, 20001))
            assert "".join(live) == done.output
            assert (done.exit_code, done.shell_restarted, done.truncated_bytes) == (7, False, 0)
            assert await nonces
            assert await session.read_file("/app/big") == bytes(range(256)) * 4096
            assert (await grading).all_passed
            answer = "exec 3<>/dev/tcp/web/8000; printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3"
            assert (await session.run(answer, S)).output == "web\n"
            await pool.close(session)
        assert await engine.inventory() == before


@pytest.mark.chaos
async def test_tests_in_a_separate_container_survive_a_kill_of_dockerd_too(own_engine: PrivateEngine):
    """Otherwise a restart of dockerd costs every sandbox that is being graded."""
    host = own_engine.host
    task = Task("beside", "", run_tests="#!/bin/sh\nsleep 15\n" + GRADED, grading=GradingLevel.COMMIT)
    async with DockerEngine(host.docker_url) as engine:
        before = await engine.inventory()
        async with SandboxPool(PoolSettings("beside", "test", 1, drain_s=20), host) as pool:
            session = await pool.open(task)
            async with asyncio.TaskGroup() as group:
                grading = group.create_task(grade_sandbox(session, task, 10 * S))
                await _tests_run(engine, {POOL_LABEL: "beside"}, session.container)
                await own_engine.kill()
                await own_engine.start()
            assert grading.result().all_passed, grading.result().log
            await pool.close(session)
        assert await engine.inventory() == before


async def _tests_run(engine: DockerEngine, labels: dict[str, str], agents: str) -> None:
    """Wait until a second container runs more than PID 1 and a shell."""
    async with asyncio.timeout(S):
        while True:
            for each in await engine.containers(labels):
                if each.id != agents and each.state == "running" and len(await container_pids(engine, each.id)) > 2:
                    return
            await asyncio.sleep(0.1)


async def _nonces(shell: SandboxShell) -> bool:
    """Return whether each of many commands got its own answer and none ran twice."""
    for n in range(30):
        if (await shell.run(f"echo nonce-{n}; echo {n} >> /app/ran", 10 * S)).output != f"nonce-{n}\n":
            return False
    return (await shell.run("cat /app/ran", S)).output == "".join(f"{n}\n" for n in range(30))


@pytest.mark.chaos
async def test_a_waiting_command_fails_when_its_container_died_with_dockerd(own_engine: PrivateEngine):
    host = own_engine.host
    async with DockerEngine(host.docker_url) as engine, SandboxPool(PoolSettings("died", "test", 1), host) as pool:
        session = await pool.open(TASK)
        pid = int((await engine.inspect(session.container))["State"]["Pid"])
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_lost(session.run("sleep 1000", 1000)))
            await own_engine.kill()
            os.kill(pid, signal.SIGKILL)
            await own_engine.start()
            await waiting
        await pool.close(session)
        assert session.container not in (await engine.inventory()).containers


async def _lost(work: Awaitable[object]) -> None:
    with pytest.raises(SandboxLost):
        await work
