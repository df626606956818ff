"""A session outlives the stream, the client and the daemon.  If these fail, a restart of the server or of dockerd costs
every sandbox that was alive, or hands a new client what was meant for the old one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandbox import provision, wire
from sandbox.engine import ContainerSpec, DockerEngine
from sandbox.errors import SandboxLost
from sandbox.host import Host
from sandbox.pool import LABEL, SandboxPool
from sandbox.session import SandboxSession, SessionLimits
from sandbox.snapshot import fork, snapshot
from sandbox.stress.own_engine import OwnEngine, refusal
from sandbox.tasks.task import Task

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TASK = Task(id="again", instruction="")
S = 60.0


async def test_a_new_stream_finds_the_same_shells_in_the_middle_of_everything(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("cd /usr; X=kept; yes | head -c 3000000 & mkfifo /tmp/go", S)
        background, terminal = session.open_shell(), await session.open_terminal(("cat",))
        background.start("read < /tmp/go; echo heard; (exit 7)")
        session.send(wire.write(1, "/tmp/half", b"x" * 1000)[:500])  # a frame that is cut in two
        session.close_stream()
        await session.stream_ended()
        with pytest.raises(SandboxLost):
            await session.run("true", S)
        await session.reattach()
        assert (await session.run("wait; echo $X; pwd; ls /tmp/half 2>&1 | wc -l; echo > /tmp/go", S)).output.endswith(
            "kept\n/usr\n1\n"
        )
        assert await background.ended(S)
        assert background.finish().exit_code == 7
        await terminal.send("still here\n")
        assert await terminal.wait_for(lambda screen: "still here" in screen.text, S)
        assert session.remaining_s > 0


async def test_a_command_that_ended_unheard_is_told_again_and_not_run_again(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        background = session.open_shell()
        background.start("mkfifo /tmp/go; read < /tmp/go; echo x >> /tmp/runs; (exit 7)")
        await session.run("until test -p /tmp/go; do :; done", S)
        session.close_stream()
        await session.stream_ended()
        end_it = ("exec", session.container, "sh", "-c", "echo > /tmp/go; until test -s /tmp/runs; do :; done")
        await asyncio.to_thread(provision.run, ("docker", "--host", session.engine.url, *end_it), "let it end")
        await session.reattach()
        assert await background.ended(S)
        assert background.finish().exit_code == 7
        assert (await session.run("cat /tmp/runs", S)).output == "x\n"


async def test_another_client_takes_over_and_kills_only_what_nobody_waits_for(pool: SandboxPool):
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
            adopted.close_stream()


async def test_a_container_that_is_gone_cannot_be_found_again(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.engine.remove(session.container)
        await session.stream_ended()
        with pytest.raises(SandboxLost):
            await session.reattach()
        with pytest.raises(SandboxLost):
            await SandboxSession.adopt(session.engine, "0" * 64)


async def test_a_copy_has_the_files_and_neither_touches_the_other(pool: SandboxPool):
    async with pool.acquire(TASK) as session:
        await session.run("cd /srv; echo one > f", S)
        async with fork(session, SessionLimits(60, 60)) as copy:
            assert (await copy.run("pwd; cat f; echo two > f", S)).output == "/srv\none\n"
            assert (await session.run("cat f", S)).output == "one\n"
            assert copy.workdir == "/app"
        with pytest.raises(SandboxLost):
            await copy.run("true", S)


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
        assert not provision.has_image(session.engine.url, images[0])


@pytest_asyncio.fixture(loop_scope="session")
async def own_engine(docker_engine: Host) -> AsyncGenerator[OwnEngine]:
    if why := refusal(docker_engine.docker_url):
        pytest.skip(why)
    async with OwnEngine.running(docker_engine) as engine:
        yield engine


@pytest.mark.chaos
async def test_after_a_kill_of_dockerd_a_new_stream_finds_the_same_shell(own_engine: OwnEngine):
    spec = ContainerSpec(own_engine.host.base_image, own_engine.host.kit, {f"{LABEL}.pool": "again"}, auto_remove=False)
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
            assert await background.ended(S)
            assert background.finish().exit_code == 7
            assert (await session.run("cat /tmp/runs", S)).output == "x\n"
            assert await engine.live_restore()
        finally:
            await session.close()
        assert session.container not in (await engine.inventory()).containers
