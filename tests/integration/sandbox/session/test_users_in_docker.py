"""If these fail, agents or tests run as another user than in Docker, or with more or fewer rights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.docker.engine import DockerEngine
from sandbox.errors import TaskFault
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from sandbox.tools import ToolContext, call_tool

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
IMAGE = r"""
RUN printf 'bob:x:1000:1001:Bob:/home/bob:/bin/bash\n' >> /etc/passwd \
 && printf 'bob:x:1001:\ncrew:x:1500:bob\n' >> /etc/group \
 && mkdir -p /home/bob /app && chown 1000:1001 /home/bob /app \
 && cp /usr/bin/id /usr/bin/rootid && chmod 4755 /usr/bin/rootid \
 && echo secret > /etc/of-root && chmod 600 /etc/of-root
"""


@pytest.fixture
def task(docker_engine: SandboxHost) -> Task:
    """A task with user bob, not yet used."""
    build = ImageBuild({"Dockerfile": f"FROM {docker_engine.base_image}\n{IMAGE}".encode()})
    return Task("users", "", build=build, network=TaskNetwork(build=NetworkMode.NONE))


def with_image_user(task: Task, user: str) -> Task:
    assert task.build is not None
    dockerfile = task.build.files["Dockerfile"] + f"USER {user}\n".encode()
    return replace(task, build=replace(task.build, files={"Dockerfile": dockerfile}))


def for_bob(task: Task, run_tests: str, expected: tuple[str, ...], **more) -> Task:
    """Return the task with tests that bob runs, as he runs the agent."""
    return replace(task, agent_user="bob", tests_user="bob", run_tests=run_tests, expected_tests=expected, **more)


async def docker_exec(engine: DockerEngine, session: SandboxSession, user: str, script: str) -> str:
    """What Docker itself runs as a user in the same container."""
    container = engine.docker.containers.container(session.container)
    command = await container.exec(["bash", "-c", script], user=user, workdir=session.workdir)
    output = b""
    async with command.start(detach=False) as stream:
        while message := await stream.read_out():
            output += message.data
    return output.decode()


@pytest.mark.parametrize("user", ["bob", "1000", "bob:crew", "4242", "4242:1500", "0:1500"])
async def test_an_agent_is_the_user_that_docker_exec_makes_it(
    pool: SandboxPool, engine: DockerEngine, task: Task, user: str
):
    async with pool.acquire(replace(task, agent_user=user)) as session:
        shown = "id; echo $HOME; umask; echo out > /dev/stdout; rootid -u"
        ours = (await session.run(shown, S)).output
        assert ours == (await docker_exec(engine, session, user, shown)).replace("\r\n", "\n")
        caps = (await session.run("grep -E '^Cap(Prm|Eff|Amb)' /proc/self/status", S)).output
        assert (set(caps.split()[1::2]) == {"0000000000000000"}) is (not user.startswith("0")), caps


async def test_the_image_names_the_user_unless_the_task_does(pool: SandboxPool, task: Task):
    of_image = with_image_user(task, "bob")
    async with pool.acquire(of_image) as session:
        assert (await session.run("whoami; echo $HOME", S)).output == "bob\n/home/bob\n"
        terminal = await session.open_terminal(("bash", "-c", "whoami; echo typed > $(tty); exit 0"))
        await terminal.wait_until_ended(S)
        assert terminal.new_output().split() == ["bob", "typed"]
    async with pool.acquire(replace(of_image, agent_user="root")) as session:
        assert (await session.run("whoami", S)).output == "root\n"
    async with pool.acquire(replace(of_image, env={"HOME": "/srv"})) as session:
        assert (await session.run("echo $HOME", S)).output == "/srv\n"


@pytest.mark.parametrize(
    ("user", "env", "home"), [("bob", {}, "/home/bob"), ("root", {}, "/root"), ("bob", {"HOME": "/app/h"}, "/app/h")]
)
async def test_the_agent_writes_to_its_home(pool: SandboxPool, task: Task, user: str, env: dict[str, str], home: str):
    async with pool.acquire(replace(task, agent_user=user, env=env)) as session:
        arguments = {"file_path": "~/notes.txt", "content": "x"}
        done = await call_tool(ToolContext(session, S), "shell_write_content_to_file", arguments)
        assert done.text.startswith("Content written to")
        assert (await session.run("stat -c '%U %n' ~/notes.txt", S)).output == f"{user} {home}/notes.txt\n"


async def test_files_are_read_and_written_as_the_agent(pool: SandboxPool, task: Task):
    given = {"/app/given": b"of the task"}
    async with pool.acquire(replace(task, agent_user="bob", files=given, setup="touch /app/by-setup")) as session:
        await session.write_files({"/app/deep/note": b"x" * 700_000, "/home/bob/own": b""})
        listed = (await session.run("stat -c '%U %n' /app/given /app/by-setup /app/deep /app/deep/note", S)).output
        assert listed == "root /app/given\nroot /app/by-setup\nbob /app/deep\nbob /app/deep/note\n"
        assert await session.read_file("/app/given") == b"of the task"
        assert set(await session.read_tree("/app")) == {"given", "by-setup", "deep/note"}
        with pytest.raises(PermissionError):
            await session.read_file("/etc/of-root")
        with pytest.raises(PermissionError):
            await session.write_files({"/etc/new": b""})
        copy = await pool.fork(session)
        assert (await copy.run("whoami; cat /app/deep/note | wc -c", S)).output == "bob\n700000\n"
        await pool.close(copy)


@pytest.mark.parametrize("level", [each for each in GradingLevel if each is not GradingLevel.SIBLING])
async def test_tests_run_as_their_own_user_at_each_level(pool: SandboxPool, task: Task, level: GradingLevel):
    script = """
whoami > /tmp/who; echo "$HOME" >> /tmp/who
echo '=== short test summary info ==='
[ "$(cat /tmp/who)" = "$(printf 'bob\\n/home/bob')" ] && echo PASSED who
[ -r /tests/helper ] && echo PASSED reads
[ "$(cat /app/work)" = done ] && echo PASSED work
echo 1 > /logs/verifier/reward.tmp && mv /logs/verifier/reward.tmp /logs/verifier/reward.txt && echo PASSED reward
"""
    graded = for_bob(
        task,
        script,
        ("who", "reads", "work", "reward"),
        tests={"helper": b""},
        reports=("/logs/verifier/reward.txt",),
        artifacts=("/app/work",) if level is GradingLevel.ARTIFACTS else (),
        grading=level,
    )
    async with pool.acquire(graded) as session:
        await session.run("echo done > /app/work", S)
        result = await grade_sandbox(session, graded, S)
        assert result.all_passed, result.log
        assert result.reward == 1.0


async def test_a_live_process_of_the_tests_user_reads_nothing_of_the_tests(pool: SandboxPool, task: Task):
    spy = """
while sleep 0.05; do
    for each in /proc/[0-9]*; do
        cat $each/environ $each/root/tests/secret /tests/secret 2> /dev/null | tr '\\0' '\\n'
        readlink $each/cwd $each/exe 2> /dev/null
    done
done >> /tmp/loot
"""
    script = "echo '=== short test summary info ==='; cat /tests/secret > /dev/null; sleep 2; echo PASSED x"
    graded = for_bob(
        task,
        script,
        ("x",),
        tests={"secret": b"the expected answer"},
        test_env={"KEY": "the key of the tests"},
        grading=GradingLevel.LIVE,
    )
    async with pool.acquire(graded) as session:
        await session.run(f"({spy}) < /dev/null > /dev/null 2>&1 &", S)
        assert (await grade_sandbox(session, graded, S)).all_passed
        loot = await session.read_file("/tmp/loot")
        assert b"HOME=/home/bob" in loot, "it saw its own processes"
        assert b"the expected answer" not in loot
        assert b"the key of the tests" not in loot


async def test_the_tasks_entrypoint_replaces_the_images_and_its_command_runs_beside_the_agent(
    pool: SandboxPool, task: Task
):
    started = replace(
        with_image_user(task, 'root\nENTRYPOINT ["touch", "/tmp/of-the-image"]\n'),
        entrypoint=("bash", "-c", 'touch /tmp/entered; exec "$@"', "entry"),
        command=("bash", "-c", "exec -a the-job sleep 1000"),
    )
    async with pool.acquire(started) as session:
        await session.run("until ps -e -o args | grep -q '^the-job'; do sleep 0.1; done", S)
        assert (await session.run("ls /tmp", S)).output == "entered\n"


@pytest.mark.parametrize("user", ["root", "bob"])
async def test_the_images_entrypoint_runs_as_its_user_before_the_agent_does(pool: SandboxPool, task: Task, user: str):
    build = """
RUN printf '#!/bin/sh\\nwhoami > /tmp/started\\nexec "$@"\\n' > /entry && chmod 755 /entry
ENTRYPOINT ["/entry"]
"""
    script = """
echo '=== short test summary info ==='
[ "$(ps -o user= -C sleep)" = "$(cat /tmp/started)" ] && echo PASSED runs
"""
    started = with_image_user(with_image_user(task, f"root{build}"), user)
    graded = replace(started, agent_user="1000", run_tests=script, expected_tests=("runs",), grading=GradingLevel.LIVE)
    async with pool.acquire(graded) as session:
        while not (await session.run("cat /tmp/started", S)).output:
            pass
        assert (await session.run("cat /tmp/started; whoami; jobs", S)).output == f"{user}\nbob\n"
        assert (await session.run("exit 3", S)).exit_code == 3
        result = await grade_sandbox(session, graded, S)
        assert result.all_passed, result.log


async def test_an_unknown_user_is_the_tasks_fault(pool: SandboxPool, task: Task):
    with pytest.raises(TaskFault, match="no user 'alice' in /etc/passwd"):
        async with pool.acquire(replace(task, agent_user="alice")):
            pass
